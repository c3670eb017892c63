/* The two sparse indexes of a segment, as they stand in its files (docs/internals/format/index.md):
 * arrays of entries, big-endian.
 *
 *     .index      int32 relative offset | int32 position   8 bytes; offsets rise, positions do not
 *                 fall
 *     .timeindex  int64 timestamp | int32 relative offset  12 bytes; timestamps rise, offsets do
 *                 not fall
 *
 * `entries` points at `count` whole entries; `slot` counts entries from 0. */
#ifndef REPLOG_INDEX_H
#define REPLOG_INDEX_H

#include <stdbool.h>

#include "bytes.h"

enum { OFFSET_ENTRY_SIZE = 8, TIME_ENTRY_SIZE = 12 };

typedef struct {
    int32_t relative_offset;
    int32_t position;
} offset_entry;

typedef struct {
    int64_t timestamp;
    int32_t relative_offset;
} time_entry;

static inline offset_entry offset_entry_at(const uint8_t *entries, int64_t slot) {
    const uint8_t *p = entries + slot * OFFSET_ENTRY_SIZE;
    return (offset_entry){load_i32(p), load_i32(p + 4)};
}

static inline time_entry time_entry_at(const uint8_t *entries, int64_t slot) {
    const uint8_t *p = entries + slot * TIME_ENTRY_SIZE;
    return (time_entry){load_i64(p), load_i32(p + 8)};
}

/* Write an entry at p. REQUIRES room for its size. */
static inline void offset_entry_write(uint8_t *p, offset_entry e) {
    store_i32(p, e.relative_offset);
    store_i32(p + 4, e.position);
}

static inline void time_entry_write(uint8_t *p, time_entry e) {
    store_i64(p, e.timestamp);
    store_i32(p + 8, e.relative_offset);
}

/* Offset minus base, which must lie in 0..INT32_MAX: STATUS_RANGE otherwise. REQUIRES both >= 0. */
int index_relative(int64_t offset, int64_t base_offset, int32_t *relative);

/* Number of leading entries that are in order: `count` when all are. */
int64_t offset_index_check(const uint8_t *entries, int64_t count);
int64_t time_index_check(const uint8_t *entries, int64_t count);

/* Number of entries whose relative offset is below `relative` (64-bit: a search may ask beyond the
 * segment). */
int64_t offset_index_below(const uint8_t *entries, int64_t count, int64_t relative);
int64_t time_index_below(const uint8_t *entries, int64_t count, int64_t relative);

/* Slot of the greatest entry whose offset, or timestamp, is not above the one asked for; -1 when
 * there is none. */
int64_t offset_index_lookup(const uint8_t *entries, int64_t count, int64_t relative);
int64_t time_index_lookup(const uint8_t *entries, int64_t count, int64_t timestamp);

#endif

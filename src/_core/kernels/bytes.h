/* Big-endian integers, and a cursor that cannot be moved past its end.
 *
 * load_* and store_* do not check: callers have. Everything that walks foreign bytes goes through a
 * cursor. */
#ifndef REPLOG_BYTES_H
#define REPLOG_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "status.h"

static inline uint16_t load_u16(const uint8_t *p) {
    return (uint16_t)((p[0] << 8) | p[1]);
}

static inline uint32_t load_u32(const uint8_t *p) {
    return ((uint32_t)p[0] << 24) | ((uint32_t)p[1] << 16) | ((uint32_t)p[2] << 8) | (uint32_t)p[3];
}

static inline uint64_t load_u64(const uint8_t *p) {
    return ((uint64_t)load_u32(p) << 32) | load_u32(p + 4);
}

/* Two's complement is what every compiler we meet does, and what C23 demands. */
static inline int16_t load_i16(const uint8_t *p) { return (int16_t)load_u16(p); }
static inline int32_t load_i32(const uint8_t *p) { return (int32_t)load_u32(p); }
static inline int64_t load_i64(const uint8_t *p) { return (int64_t)load_u64(p); }

static inline void store_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static inline void store_u32(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
}

static inline void store_u64(uint8_t *p, uint64_t v) {
    store_u32(p, (uint32_t)(v >> 32));
    store_u32(p + 4, (uint32_t)v);
}

static inline void store_i16(uint8_t *p, int16_t v) { store_u16(p, (uint16_t)v); }
static inline void store_i32(uint8_t *p, int32_t v) { store_u32(p, (uint32_t)v); }
static inline void store_i64(uint8_t *p, int64_t v) { store_u64(p, (uint64_t)v); }

/* Sum that wraps as Java's does, instead of being undefined. */
static inline int64_t add_wrapping(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t subtract_wrapping(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

/* Unread bytes: [p, end). Borrowed; the caller keeps them alive. */
typedef struct {
    const uint8_t *p;
    const uint8_t *end;
} cursor;

static inline size_t cursor_left(const cursor *c) { return (size_t)(c->end - c->p); }

/* The next `size` bytes, which are then read; NULL, and nothing read, when there are fewer. */
static inline const uint8_t *cursor_take(cursor *c, size_t size) {
    const uint8_t *p = c->p;
    if (size > cursor_left(c)) {
        return NULL;
    }
    c->p += size;
    return p;
}

#endif

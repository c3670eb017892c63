#include "index.h"

int index_relative(int64_t offset, int64_t base_offset, int32_t *relative) {
    if (offset < base_offset || offset - base_offset > INT32_MAX) {
        return STATUS_RANGE;
    }
    *relative = (int32_t)(offset - base_offset);
    return STATUS_OK;
}

int64_t offset_index_check(const uint8_t *entries, int64_t count) {
    offset_entry previous = {-1, 0};
    for (int64_t slot = 0; slot < count; slot++) {
        const offset_entry e = offset_entry_at(entries, slot);
        if (e.relative_offset <= previous.relative_offset || e.position < previous.position) {
            return slot;
        }
        previous = e;
    }
    return count;
}

int64_t time_index_check(const uint8_t *entries, int64_t count) {
    time_entry previous = {-1, 0};
    for (int64_t slot = 0; slot < count; slot++) {
        const time_entry e = time_entry_at(entries, slot);
        if (e.timestamp <= previous.timestamp || e.relative_offset < previous.relative_offset) {
            return slot;
        }
        previous = e;
    }
    return count;
}

/* The key an index is searched by: an int32, or an int64 where `wide`. */
static inline int64_t key_at(const uint8_t *entry, bool wide) { return wide ? load_i64(entry) : load_i32(entry); }

/* Number of entries whose key is below `key`. */
static inline int64_t lower_bound(const uint8_t *keys, int64_t stride, bool wide, int64_t count, int64_t key) {
    int64_t low = 0;
    int64_t high = count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (key_at(keys + middle * stride, wide) < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Slot of the last entry whose key is not above `key`, or -1. */
static inline int64_t floor_slot(const uint8_t *keys, int64_t stride, bool wide, int64_t count, int64_t key) {
    return key == INT64_MAX ? count - 1 : lower_bound(keys, stride, wide, count, key + 1) - 1;
}

int64_t offset_index_below(const uint8_t *entries, int64_t count, int64_t relative) {
    return lower_bound(entries, OFFSET_ENTRY_SIZE, false, count, relative);
}

int64_t time_index_below(const uint8_t *entries, int64_t count, int64_t relative) {
    return lower_bound(entries + 8, TIME_ENTRY_SIZE, false, count, relative);
}

int64_t offset_index_lookup(const uint8_t *entries, int64_t count, int64_t relative) {
    return floor_slot(entries, OFFSET_ENTRY_SIZE, false, count, relative);
}

int64_t time_index_lookup(const uint8_t *entries, int64_t count, int64_t timestamp) {
    return floor_slot(entries, TIME_ENTRY_SIZE, true, count, timestamp);
}

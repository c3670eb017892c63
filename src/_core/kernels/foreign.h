/* Values of foreign Arrow arrays: in the byte order of this machine, and at any address, because
 * the C data interface recommends alignment and does not demand it. */
#ifndef REPLOG_FOREIGN_H
#define REPLOG_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Whether a row is not null. `validity` NULL: nothing is null. */
static inline bool is_valid(const uint8_t *validity, int64_t row) {
    return validity == NULL || (validity[row >> 3] >> (row & 7) & 1);
}

/* Item `i` of an array of 32 or 64 bits each. */
static inline int32_t i32_at(const void *items, int64_t i) {
    int32_t v;
    memcpy(&v, (const uint8_t *)items + i * (int64_t)sizeof v, sizeof v);
    return v;
}

static inline int64_t i64_at(const void *items, int64_t i) {
    int64_t v;
    memcpy(&v, (const uint8_t *)items + i * (int64_t)sizeof v, sizeof v);
    return v;
}

#endif

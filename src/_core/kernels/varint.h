/* Variable-length integers of a record: zig-zag, then base 128, low groups first, high bit = "more
 * follows".
 *
 *      0 -> 00      -1 -> 01      1 -> 02      63 -> 7e      64 -> 80 01
 *
 * As Kafka's reader does, surplus high bits in the last allowed byte are dropped in silence; a
 * longer one is refused. */
#ifndef REPLOG_VARINT_H
#define REPLOG_VARINT_H

#include <stdbool.h>

#include "bytes.h"

enum {
    VARINT_SIZE_MAX = 5,   /* bytes of the longest 32-bit varint */
    VARLONG_SIZE_MAX = 10  /* bytes of the longest 64-bit one */
};

static inline uint32_t zigzag32(int32_t v) { return ((uint32_t)v << 1) ^ (v < 0 ? UINT32_MAX : 0U); }
static inline uint64_t zigzag64(int64_t v) { return ((uint64_t)v << 1) ^ (v < 0 ? UINT64_MAX : 0U); }
static inline int32_t unzigzag32(uint32_t u) { return (int32_t)((u >> 1) ^ (0U - (u & 1U))); }
static inline int64_t unzigzag64(uint64_t u) { return (int64_t)((u >> 1) ^ (0U - (u & 1U))); }

/* Bytes that the unsigned value `u` takes: one per started group of 7 bits. */
static inline size_t uvarint_size(uint64_t u) {
    unsigned bits = 64U - (unsigned)__builtin_clzll(u | 1U);
    return (bits * 9U + 64U) / 64U; /* ceil(bits / 7) without a division, exact for 1..64 */
}

static inline size_t varint_size(int32_t v) { return uvarint_size(zigzag32(v)); }
static inline size_t varlong_size(int64_t v) { return uvarint_size(zigzag64(v)); }

/* Write at `p`; returns the byte behind. REQUIRES room for the value's size. */
static inline uint8_t *uvarint_write(uint8_t *p, uint64_t u) {
    while (u >= 0x80U) {
        *p++ = (uint8_t)(u | 0x80U);
        u >>= 7;
    }
    *p++ = (uint8_t)u;
    return p;
}

static inline uint8_t *varint_write(uint8_t *p, int32_t v) { return uvarint_write(p, zigzag32(v)); }
static inline uint8_t *varlong_write(uint8_t *p, int64_t v) { return uvarint_write(p, zigzag64(v)); }

/* A varint of any length, byte by byte. Not inline: it is for the rare ones. */
__attribute__((noinline, unused)) static int uvarint_read(cursor *c, unsigned size_max, uint64_t *out) {
    uint64_t u = 0;
    for (unsigned shift = 0; shift < 7U * size_max; shift += 7U) {
        if (c->p == c->end) {
            return STATUS_CUT;
        }
        const uint64_t byte = *c->p++;
        u |= (byte & 0x7FU) << shift;
        if (byte < 0x80U) {
            *out = u;
            return STATUS_OK;
        }
    }
    return STATUS_VARINT;
}

/* Read a varint of one or two bytes, as nearly all are, and move the cursor behind it. Returns
 * false, and reads nothing, if it is longer. */
static inline bool uvarint_read_short(cursor *c, uint32_t *out) {
    const uint8_t *const p = c->p;
    if (p < c->end && p[0] < 0x80U) {
        *out = p[0];
        c->p = p + 1;
        return true;
    }
    if (c->end - p >= 2 && p[1] < 0x80U) {
        *out = (p[0] & 0x7FU) | ((uint32_t)p[1] << 7);
        c->p = p + 2;
        return true;
    }
    return false;
}

/* Read into `*out`: STATUS_OK, or STATUS_CUT or STATUS_VARINT with the cursor somewhere inside the
 * varint. */
static inline int varint_read(cursor *c, int32_t *out) {
    uint32_t u;
    if (!uvarint_read_short(c, &u)) {
        uint64_t wide = 0;
        const int status = uvarint_read(c, VARINT_SIZE_MAX, &wide);
        if (status < 0) {
            return status;
        }
        u = (uint32_t)wide;
    }
    *out = unzigzag32(u);
    return STATUS_OK;
}

static inline int varlong_read(cursor *c, int64_t *out) {
    uint32_t u;
    uint64_t wide = 0;
    if (uvarint_read_short(c, &u)) {
        wide = u;
    } else {
        const int status = uvarint_read(c, VARLONG_SIZE_MAX, &wide);
        if (status < 0) {
            return status;
        }
    }
    *out = unzigzag64(wide);
    return STATUS_OK;
}

#endif

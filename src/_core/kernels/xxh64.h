/* XXH64 (Yann Collet, https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md),
 * little-endian reads on any machine.
 *
 * On disk: the fingerprints of spooled batches are made of it (docs/internals/format/spool.md). */
#ifndef REPLOG_XXH64_H
#define REPLOG_XXH64_H

#include <stddef.h>
#include <stdint.h>

#define XXH64_P1 0x9E3779B185EBCA87u
#define XXH64_P2 0xC2B2AE3D27D4EB4Fu
#define XXH64_P3 0x165667B19E3779F9u
#define XXH64_P4 0x85EBCA77C2B2AE63u
#define XXH64_P5 0x27D4EB2F165667C5u

static inline uint64_t xxh64_rotate(uint64_t v, int bits) { return v << bits | v >> (64 - bits); }

static inline uint64_t xxh64_load32(const uint8_t *p) {
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24;
}

static inline uint64_t xxh64_load64(const uint8_t *p) { return xxh64_load32(p) | xxh64_load32(p + 4) << 32; }

static inline uint64_t xxh64_round(uint64_t lane, uint64_t v) {
    return xxh64_rotate(lane + v * XXH64_P2, 31) * XXH64_P1;
}

static inline uint64_t xxh64_merge(uint64_t h, uint64_t lane) {
    return (h ^ xxh64_round(0, lane)) * XXH64_P1 + XXH64_P4;
}

static inline uint64_t xxh64(const uint8_t *p, size_t size, uint64_t seed) {
    size_t left = size;
    uint64_t h;
    if (left >= 32) {
        uint64_t a = seed + XXH64_P1 + XXH64_P2, b = seed + XXH64_P2, c = seed, d = seed - XXH64_P1;
        for (; left >= 32; p += 32, left -= 32) {
            a = xxh64_round(a, xxh64_load64(p));
            b = xxh64_round(b, xxh64_load64(p + 8));
            c = xxh64_round(c, xxh64_load64(p + 16));
            d = xxh64_round(d, xxh64_load64(p + 24));
        }
        h = xxh64_rotate(a, 1) + xxh64_rotate(b, 7) + xxh64_rotate(c, 12) + xxh64_rotate(d, 18);
        h = xxh64_merge(xxh64_merge(xxh64_merge(xxh64_merge(h, a), b), c), d);
    } else {
        h = seed + XXH64_P5;
    }
    h += (uint64_t)size;
    for (; left >= 8; p += 8, left -= 8) {
        h = xxh64_rotate(h ^ xxh64_round(0, xxh64_load64(p)), 27) * XXH64_P1 + XXH64_P4;
    }
    if (left >= 4) {
        h = xxh64_rotate(h ^ xxh64_load32(p) * XXH64_P1, 23) * XXH64_P2 + XXH64_P3;
        p += 4;
        left -= 4;
    }
    for (; left > 0; p++, left--) {
        h = xxh64_rotate(h ^ *p * XXH64_P5, 11) * XXH64_P1;
    }
    h = (h ^ h >> 33) * XXH64_P2;
    h = (h ^ h >> 29) * XXH64_P3;
    return h ^ h >> 32;
}

#endif

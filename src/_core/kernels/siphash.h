/* SipHash-2-4 with a result of 128 bits (Jean-Philippe Aumasson and Daniel J. Bernstein,
 * https://github.com/veorq/SipHash), little-endian reads on any machine. A keyed hash: without the
 * secret, no writer can find two keys with one hash. Never on a disk. */
#ifndef REPLOG_SIPHASH_H
#define REPLOG_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t low;
    uint64_t high;
} hash128;

static inline uint64_t siphash_rotate(uint64_t v, unsigned bits) { return v << bits | v >> (64U - bits); }

static inline uint64_t siphash_load(const uint8_t *p, size_t size) {
    uint64_t v = 0;
    for (size_t i = 0; i < size; i++) {
        v |= (uint64_t)p[i] << (8U * (unsigned)i);
    }
    return v;
}

static inline void siphash_rounds(uint64_t v[4], int count) {
    for (int i = 0; i < count; i++) {
        v[0] += v[1];
        v[1] = siphash_rotate(v[1], 13) ^ v[0];
        v[0] = siphash_rotate(v[0], 32);
        v[2] += v[3];
        v[3] = siphash_rotate(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = siphash_rotate(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = siphash_rotate(v[1], 17) ^ v[2];
        v[2] = siphash_rotate(v[2], 32);
    }
}

/* The hash of the `size` bytes at p under the two halves of the secret. */
static inline hash128 siphash128(const uint8_t *p, size_t size, const uint64_t secret[2]) {
    uint64_t v[4] = {
        UINT64_C(0x736f6d6570736575) ^ secret[0],
        UINT64_C(0x646f72616e646f6d) ^ secret[1] ^ 0xee,
        UINT64_C(0x6c7967656e657261) ^ secret[0],
        UINT64_C(0x7465646279746573) ^ secret[1],
    };
    size_t left = size;
    for (; left >= 8; left -= 8, p += 8) {
        const uint64_t word = siphash_load(p, 8);
        v[3] ^= word;
        siphash_rounds(v, 2);
        v[0] ^= word;
    }
    const uint64_t rest = (uint64_t)size << 56 | siphash_load(p, left);
    v[3] ^= rest;
    siphash_rounds(v, 2);
    v[0] ^= rest;
    hash128 out;
    v[2] ^= 0xee;
    siphash_rounds(v, 4);
    out.low = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    siphash_rounds(v, 4);
    out.high = v[0] ^ v[1] ^ v[2] ^ v[3];
    return out;
}

#endif

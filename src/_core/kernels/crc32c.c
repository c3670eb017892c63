/* CRC-32C, five ways.
 *
 * A CRC is a remainder: the message, read as a polynomial over GF(2), modulo P of degree 32. Two
 * facts make it fast:
 *
 *  - The remainder of A followed by n bits is that of A * x^n. So independent pieces can be summed
 *    up side by side and moved to their place afterwards by a multiplication with a constant x^n
 *    mod P. Processors start one crc32 instruction per cycle but need three for its result: three
 *    pieces ("lanes") keep it busy.
 *  - For the same reason a 128-bit accumulator may be folded forward over the bytes that follow it:
 *    multiply its halves by x^(n+64) and x^n mod P and add the bytes n bits further on. With
 *    512-bit registers four accumulators take 256 bytes a round.
 *  - Products and the crc32 instruction are computed by different units. So if a product has 128 or
 *    256 bits only, both together are half as fast again as either: four accumulators in front,
 *    three lanes behind them.
 *
 * Bits are reflected (the first bit of a byte is its lowest), so a product of two reflected values
 * comes out shifted by one, and the crc32 instruction, which reduces it, multiplies by x^32: hence
 * the exponents n - 33 and n + 31 below. Method: Intel's "Fast CRC computation ... using
 * PCLMULQDQ", 2009; the exponents as in https://www.corsix.org/content/fast-crc32c-4k. The
 * constants are checked against the definition by tests/unit/record/test_core_crc.py. */
#include "crc32c.h"

#include <stdbool.h>
#include <string.h>

#include "crc32c_table.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define CRC32C_X86_64 1
#include <immintrin.h>
#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))
#define CRC32C_AARCH64 1
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#endif

static inline uint32_t load_le32(const uint8_t *p) {
    return (uint32_t)p[0] | ((uint32_t)p[1] << 8) | ((uint32_t)p[2] << 16) | ((uint32_t)p[3] << 24);
}

/* -- table: eight bytes a step -- */

static uint32_t crc32c_portable(uint32_t crc, const uint8_t *p, size_t size) {
    for (; size >= 8; p += 8, size -= 8) {
        const uint32_t low = crc ^ load_le32(p);
        const uint32_t high = load_le32(p + 4);
        crc = crc32c_table[7][low & 255U] ^ crc32c_table[6][(low >> 8) & 255U] ^ crc32c_table[5][(low >> 16) & 255U] ^
              crc32c_table[4][low >> 24] ^ crc32c_table[3][high & 255U] ^ crc32c_table[2][(high >> 8) & 255U] ^
              crc32c_table[1][(high >> 16) & 255U] ^ crc32c_table[0][high >> 24];
    }
    for (; size > 0; p++, size--) {
        crc = (crc >> 8) ^ crc32c_table[0][(crc ^ *p) & 255U];
    }
    return crc;
}

/* -- the instruction: what each processor calls it -- */

#if CRC32C_X86_64

/* Newer clang counts the instruction apart from the rest of SSE 4.2. */
#if defined(__clang__) && __clang_major__ >= 14
#define CRC32C_SSE "sse4.2,crc32,pclmul"
#else
#define CRC32C_SSE "sse4.2,pclmul"
#endif
#define CRC32C_INSTRUCTION __attribute__((target(CRC32C_SSE)))

static inline bool has_instruction(void) {
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

CRC32C_INSTRUCTION static inline uint64_t step_word(uint64_t crc, const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return _mm_crc32_u64(crc, word);
}

CRC32C_INSTRUCTION static inline uint64_t step_byte(uint64_t crc, const uint8_t *p) {
    return _mm_crc32_u8((uint32_t)crc, *p);
}

/* a * power_a + b * power_b, reduced. */
CRC32C_INSTRUCTION static inline uint64_t join_lanes(uint64_t a, uint32_t power_a, uint64_t b, uint32_t power_b) {
    const __m128i left = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)a), _mm_cvtsi32_si128((int)power_a), 0);
    const __m128i right = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)b), _mm_cvtsi32_si128((int)power_b), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(left, right)));
}

#elif CRC32C_AARCH64

#define CRC32C_INSTRUCTION

static inline bool has_instruction(void) {
#if defined(__ARM_FEATURE_CRC32) || defined(__APPLE__)
    return true;
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) & (1UL << 7)) != 0; /* HWCAP_CRC32 */
#else
    return false;
#endif
}

static inline uint64_t step_word(uint64_t crc, const uint8_t *p) {
    uint64_t word;
    uint32_t result;
    memcpy(&word, p, sizeof word);
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w1, %x2" : "=r"(result) : "r"((uint32_t)crc), "r"(word));
    return result;
}

static inline uint64_t step_byte(uint64_t crc, const uint8_t *p) {
    uint32_t result;
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w1, %w2" : "=r"(result) : "r"((uint32_t)crc), "r"((uint32_t)*p));
    return result;
}

/* The carry-less product of two 32-bit values, bit by bit: two per kilobyte and more, so its
 * slowness does not show. */
static inline uint64_t multiply(uint32_t a, uint32_t b) {
    uint64_t product = 0;
    for (unsigned i = 0; i < 32; i++) {
        product ^= ((uint64_t)a << i) & (0U - (uint64_t)((b >> i) & 1U));
    }
    return product;
}

static inline uint64_t join_lanes(uint64_t a, uint32_t power_a, uint64_t b, uint32_t power_b) {
    const uint64_t product = multiply((uint32_t)a, power_a) ^ multiply((uint32_t)b, power_b);
    uint8_t word[8];
    memcpy(word, &product, sizeof word);
    return step_word(0, word);
}

#endif

/* -- the instruction: three lanes -- */

#if CRC32C_X86_64 || CRC32C_AARCH64

/* Three neighbouring lanes of `lane` bytes each; power_1 and power_2 are x^(8 * lane - 33) and
 * x^(16 * lane - 33). */
CRC32C_INSTRUCTION static inline uint64_t three_lanes(uint64_t crc, const uint8_t *p, size_t lane, uint32_t power_1,
                                                      uint32_t power_2) {
    const uint8_t *const end = p + lane;
    uint64_t second = 0;
    uint64_t third = 0;
    for (; p < end; p += 8) {
        crc = step_word(crc, p);
        second = step_word(second, p + lane);
        third = step_word(third, p + 2 * lane);
    }
    return join_lanes(crc, power_2, second, power_1) ^ third;
}

CRC32C_INSTRUCTION static uint32_t crc32c_instruction(uint32_t start, const uint8_t *p, size_t size) {
    enum { LONG = 2048, SHORT = 128 };
    uint64_t crc = start;
    for (; size >= 3 * LONG; p += 3 * LONG, size -= 3 * LONG) {
        crc = three_lanes(crc, p, LONG, 0xa51b6135U, 0x82f89c77U);
    }
    for (; size >= 3 * SHORT; p += 3 * SHORT, size -= 3 * SHORT) {
        crc = three_lanes(crc, p, SHORT, 0x0d3b6092U, 0xb9e02b86U);
    }
    for (; size >= 8; p += 8, size -= 8) {
        crc = step_word(crc, p);
    }
    for (; size > 0; p++, size--) {
        crc = step_byte(crc, p);
    }
    return (uint32_t)crc;
}

#endif

/* -- the instruction beside carry-less products of 128 bits -- */

#if CRC32C_X86_64

/* 128 bits moved n bits on, added to `to`; by = (x^(n+31), x^(n-33)). */
CRC32C_INSTRUCTION static inline __m128i fold_word(__m128i from, __m128i by, __m128i to) {
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(from, by, 0x00), to), _mm_clmulepi64_si128(from, by, 0x11));
}

CRC32C_INSTRUCTION static inline __m128i load_word(const uint8_t *p) {
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

CRC32C_INSTRUCTION static inline __m128i word_powers(uint32_t low, uint32_t high) {
    return _mm_set_epi64x((long long)high, (long long)low);
}

/* What 128 bits leave. */
CRC32C_INSTRUCTION static inline uint64_t reduce_word(__m128i word) {
    const uint64_t low = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(word));
    return _mm_crc32_u64(low, (uint64_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(word, word)));
}

/* rounds * 136 bytes: rounds * 64 in four accumulators and, behind them, three lanes of rounds * 24
 * each. power_k = x^(8 * k * 24 * rounds - 33). */
CRC32C_INSTRUCTION static inline uint64_t fused_block(uint64_t crc, const uint8_t *p, size_t rounds, uint32_t power_1,
                                                      uint32_t power_2, uint32_t power_3) {
    const __m128i by_512 = word_powers(0x740eef02U, 0x9e4addf8U);
    const __m128i by_128 = word_powers(0xf20c0dfeU, 0x493c7d27U);
    const uint8_t *const end = p + 64 * rounds;
    const uint8_t *q_1 = end;
    const uint8_t *q_2 = q_1 + 24 * rounds;
    const uint8_t *q_3 = q_2 + 24 * rounds;
    __m128i a = _mm_xor_si128(load_word(p), _mm_cvtsi64_si128((long long)crc));
    __m128i b = load_word(p + 16);
    __m128i c = load_word(p + 32);
    __m128i d = load_word(p + 48);
    uint64_t lane_1 = 0;
    uint64_t lane_2 = 0;
    uint64_t lane_3 = 0;
    for (p += 64;; p += 64) {
        lane_1 = step_word(step_word(step_word(lane_1, q_1), q_1 + 8), q_1 + 16);
        lane_2 = step_word(step_word(step_word(lane_2, q_2), q_2 + 8), q_2 + 16);
        lane_3 = step_word(step_word(step_word(lane_3, q_3), q_3 + 8), q_3 + 16);
        if (p == end) {
            break;
        }
        q_1 += 24;
        q_2 += 24;
        q_3 += 24;
        a = fold_word(a, by_512, load_word(p));
        b = fold_word(b, by_512, load_word(p + 16));
        c = fold_word(c, by_512, load_word(p + 32));
        d = fold_word(d, by_512, load_word(p + 48));
    }
    d = fold_word(fold_word(fold_word(a, by_128, b), by_128, c), by_128, d);
    return join_lanes(reduce_word(d), power_3, lane_1, power_2) ^ join_lanes(lane_2, power_1, 0, 0) ^ lane_3;
}

CRC32C_INSTRUCTION static uint32_t crc32c_fused(uint32_t start, const uint8_t *p, size_t size) {
    enum { LONG = 120, SHORT = 12 }; /* rounds */
    uint64_t crc = start;
    for (; size >= 136 * LONG; p += 136 * LONG, size -= 136 * LONG) {
        crc = fused_block(crc, p, LONG, 0x465a4eeeU, 0x6bce9345U, 0xdd4b4a66U);
    }
    for (; size >= 136 * SHORT; p += 136 * SHORT, size -= 136 * SHORT) {
        crc = fused_block(crc, p, SHORT, 0xb6dd949bU, 0x271d9844U, 0x98d8d9cbU);
    }
    return crc32c_instruction((uint32_t)crc, p, size);
}

#endif

/* -- the instruction beside carry-less products of 256 bits -- */

#if CRC32C_X86_64

#define CRC32C_WIDE __attribute__((target("avx2,vpclmulqdq," CRC32C_SSE)))

static inline bool has_wide(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq") && has_instruction();
}

/* fold_word, for each half. */
CRC32C_WIDE static inline __m256i fold_pair(__m256i from, __m256i by, __m256i to) {
    return _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(from, by, 0x00), to),
                            _mm256_clmulepi64_epi128(from, by, 0x11));
}

CRC32C_WIDE static inline __m256i load_pair(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

CRC32C_WIDE static inline __m256i pair_powers(uint32_t low, uint32_t high) {
    return _mm256_broadcastsi128_si256(word_powers(low, high));
}

CRC32C_WIDE static inline uint64_t step_five(uint64_t crc, const uint8_t *p) {
    return step_word(step_word(step_word(step_word(step_word(crc, p), p + 8), p + 16), p + 24), p + 32);
}

/* rounds * 248 bytes: rounds * 128 in four accumulators and, behind them, three lanes of rounds *
 * 40 each. power_k = x^(8 * k * 40 * rounds - 33). */
CRC32C_WIDE static inline uint64_t wide_block(uint64_t crc, const uint8_t *p, size_t rounds, uint32_t power_1,
                                              uint32_t power_2, uint32_t power_3) {
    const __m256i by_1024 = pair_powers(0x6992cea2U, 0x0d3b6092U);
    const __m256i by_256 = pair_powers(0x3da6d0cbU, 0xba4fc28eU);
    const __m128i by_128 = word_powers(0xf20c0dfeU, 0x493c7d27U);
    const uint8_t *const end = p + 128 * rounds;
    const uint8_t *q_1 = end;
    const uint8_t *q_2 = q_1 + 40 * rounds;
    const uint8_t *q_3 = q_2 + 40 * rounds;
    __m256i a = _mm256_xor_si256(load_pair(p), _mm256_zextsi128_si256(_mm_cvtsi64_si128((long long)crc)));
    __m256i b = load_pair(p + 32);
    __m256i c = load_pair(p + 64);
    __m256i d = load_pair(p + 96);
    uint64_t lane_1 = 0;
    uint64_t lane_2 = 0;
    uint64_t lane_3 = 0;
    for (p += 128;; p += 128) {
        lane_1 = step_five(lane_1, q_1);
        lane_2 = step_five(lane_2, q_2);
        lane_3 = step_five(lane_3, q_3);
        if (p == end) {
            break;
        }
        q_1 += 40;
        q_2 += 40;
        q_3 += 40;
        a = fold_pair(a, by_1024, load_pair(p));
        b = fold_pair(b, by_1024, load_pair(p + 32));
        c = fold_pair(c, by_1024, load_pair(p + 64));
        d = fold_pair(d, by_1024, load_pair(p + 96));
    }
    d = fold_pair(fold_pair(fold_pair(a, by_256, b), by_256, c), by_256, d);
    const __m128i sum = fold_word(_mm256_castsi256_si128(d), by_128, _mm256_extracti128_si256(d, 1));
    return join_lanes(reduce_word(sum), power_3, lane_1, power_2) ^ join_lanes(lane_2, power_1, 0, 0) ^ lane_3;
}

CRC32C_WIDE static uint32_t crc32c_wide(uint32_t start, const uint8_t *p, size_t size) {
    enum { LONG = 66, SHORT = 8 }; /* rounds */
    uint64_t crc = start;
    for (; size >= 248 * LONG; p += 248 * LONG, size -= 248 * LONG) {
        crc = wide_block(crc, p, LONG, 0x2e7d11a7U, 0x7959fe2aU, 0x96eabc10U);
    }
    for (; size >= 248 * SHORT; p += 248 * SHORT, size -= 248 * SHORT) {
        crc = wide_block(crc, p, SHORT, 0xbac2fd7bU, 0x6b749fb2U, 0x3771e98fU);
    }
    return crc32c_fused((uint32_t)crc, p, size);
}

#endif

/* -- carry-less products of 512 bits -- */

#if CRC32C_X86_64

#define CRC32C_FOLDING __attribute__((target("avx512f,avx512vl,vpclmulqdq," CRC32C_SSE)))

static inline bool has_folding(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2");
}

/* Every 128-bit part of `from`, moved n bits on, added to `to`; by = (x^(n+31), x^(n-33)) in each
 * part. */
CRC32C_FOLDING static inline __m512i fold(__m512i from, __m512i by, __m512i to) {
    const __m512i low = _mm512_clmulepi64_epi128(from, by, 0x00);
    const __m512i high = _mm512_clmulepi64_epi128(from, by, 0x11);
    return _mm512_ternarylogic_epi64(low, high, to, 0x96); /* low ^ high ^ to */
}

CRC32C_FOLDING static inline __m512i powers(uint32_t low, uint32_t high) {
    return _mm512_broadcast_i32x4(_mm_set_epi64x((long long)high, (long long)low));
}

/* REQUIRES size >= 256. Takes a multiple of 64 bytes; the caller goes on behind with the rest. */
CRC32C_FOLDING static uint32_t crc32c_folding(uint32_t crc, const uint8_t *p, size_t size) {
    const __m512i by_2048 = powers(0xdcb17aa4U, 0xb9e02b86U);
    const __m512i by_512 = powers(0x740eef02U, 0x9e4addf8U);
    __m512i a = _mm512_loadu_si512(p);
    __m512i b = _mm512_loadu_si512(p + 64);
    __m512i c = _mm512_loadu_si512(p + 128);
    __m512i d = _mm512_loadu_si512(p + 192);
    a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    for (p += 256, size -= 256; size >= 256; p += 256, size -= 256) {
        a = fold(a, by_2048, _mm512_loadu_si512(p));
        b = fold(b, by_2048, _mm512_loadu_si512(p + 64));
        c = fold(c, by_2048, _mm512_loadu_si512(p + 128));
        d = fold(d, by_2048, _mm512_loadu_si512(p + 192));
    }
    d = fold(fold(fold(a, by_512, b), by_512, c), by_512, d);
    for (; size >= 64; p += 64, size -= 64) {
        d = fold(d, by_512, _mm512_loadu_si512(p));
    }
    /* The four parts onto the last: by 384, 256 and 128 bits, and not at all. */
    const __m512i places = _mm512_set_epi64(0, 0, 0x493c7d27, (long long)0xf20c0dfeU, (long long)0xba4fc28eU,
                                            0x3da6d0cb, (long long)0xddc0152bU, 0x1c291d04);
    const __m512i last = _mm512_maskz_mov_epi64(0xC0, d);
    const __m512i moved = fold(d, places, last);
    const __m128i sum =
        _mm_xor_si128(_mm_xor_si128(_mm512_castsi512_si128(moved), _mm512_extracti32x4_epi32(moved, 1)),
                      _mm_xor_si128(_mm512_extracti32x4_epi32(moved, 2), _mm512_extracti32x4_epi32(moved, 3)));
    return (uint32_t)reduce_word(sum);
}

#endif

/* -- choosing -- */

uint32_t crc32c_by(int way, uint32_t crc, const uint8_t *p, size_t size, int *used) {
    crc = ~crc;
    *used = 0;
#if CRC32C_X86_64
    if (way >= 4 && size >= 256 && has_folding()) {
        *used = 4;
        crc = crc32c_folding(crc, p, size);
        p += size & ~(size_t)63;
        size &= 63;
        return ~crc32c_instruction(crc, p, size);
    }
    if (way >= 3 && has_wide()) {
        *used = 3;
        return ~crc32c_wide(crc, p, size);
    }
    if (way >= 2 && has_instruction()) {
        *used = 2;
        return ~crc32c_fused(crc, p, size);
    }
#endif
#if CRC32C_X86_64 || CRC32C_AARCH64
    if (way >= 1 && has_instruction()) {
        *used = 1;
        return ~crc32c_instruction(crc, p, size);
    }
#endif
    (void)way;
    return ~crc32c_portable(crc, p, size);
}

uint32_t crc32c(uint32_t crc, const uint8_t *p, size_t size) {
    int used;
    return crc32c_by(4, crc, p, size, &used);
}

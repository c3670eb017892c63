/* UTF-8 as Unicode defines it: shortest forms only, no surrogates, nothing above U+10FFFF. */
#ifndef REPLOG_UTF8_H
#define REPLOG_UTF8_H

#include <stdbool.h>

#include "bytes.h"

enum {
    UTF8_GROWTH =
        3 /* one wrong byte becomes the three of U+FFFD, so a text with replacements grows at most so much */
};

/* The byte behind the first character of [p, end), or, with `*valid` false, behind the wrong bytes
 * there that one U+FFFD stands for: the longest beginning of a character, at least one byte
 * (Unicode's "maximal subpart", which Python's errors="replace" follows). REQUIRES p < end. */
static inline const uint8_t *utf8_next(const uint8_t *p, const uint8_t *end, bool *valid) {
    const uint8_t lead = *p++;
    *valid = true;
    if (lead < 0x80U) {
        return p;
    }
    /* `more` bytes must follow: the first is within [low, high], the others are within [80, bf]. */
    unsigned more;
    uint8_t low = 0x80U;
    uint8_t high = 0xBFU;
    if (lead >= 0xC2U && lead <= 0xDFU) {
        more = 1;
    } else if (lead >= 0xE0U && lead <= 0xEFU) {
        more = 2;
        low = lead == 0xE0U ? 0xA0U : 0x80U;   /* e0: shorter form exists below a0 */
        high = lead == 0xEDU ? 0x9FU : 0xBFU;  /* ed: surrogates from a0 */
    } else if (lead >= 0xF0U && lead <= 0xF4U) {
        more = 3;
        low = lead == 0xF0U ? 0x90U : 0x80U;   /* f0: shorter form exists below 90 */
        high = lead == 0xF4U ? 0x8FU : 0xBFU;  /* f4: above U+10FFFF from 90 */
    } else {
        *valid = false;
        return p;
    }
    for (; more > 0; more--) {
        if (p == end || *p < low || *p > high) {
            *valid = false;
            return p;
        }
        p++;
        low = 0x80U;
        high = 0xBFU;
    }
    return p;
}

static inline bool utf8_is_valid(const uint8_t *p, const uint8_t *end) {
    bool valid = true;
    while (p < end && valid) {
        p = utf8_next(p, end, &valid);
    }
    return valid;
}

/* Write [p, end) to `to`, with U+FFFD for bytes that are not UTF-8. Returns the byte behind it.
 * REQUIRES space for UTF8_GROWTH times as many bytes. */
static inline uint8_t *utf8_replace(uint8_t *to, const uint8_t *p, const uint8_t *end) {
    while (p < end) {
        bool valid;
        const uint8_t *const next = utf8_next(p, end, &valid);
        if (valid) {
            memcpy(to, p, (size_t)(next - p));
            to += next - p;
        } else {
            *to++ = 0xEFU;
            *to++ = 0xBFU;
            *to++ = 0xBDU;
        }
        p = next;
    }
    return to;
}

#endif

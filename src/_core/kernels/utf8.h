/* Whether bytes are UTF-8 as Unicode defines it: shortest forms only, no surrogates, nothing above U+10FFFF. */
#ifndef REPLOG_UTF8_H
#define REPLOG_UTF8_H

#include <stdbool.h>

#include "bytes.h"

static inline bool utf8_is_valid(const uint8_t *p, const uint8_t *end) {
    while (p < end) {
        const uint8_t lead = *p++;
        if (lead < 0x80U) {
            continue;
        }
        /* What may follow: `more` bytes, the first of them within [low, high], the others within [80, bf]. */
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
            return false;
        }
        if ((size_t)(end - p) < more || p[0] < low || p[0] > high) {
            return false;
        }
        for (unsigned i = 1; i < more; i++) {
            if (p[i] < 0x80U || p[i] > 0xBFU) {
                return false;
            }
        }
        p += more;
    }
    return true;
}

#endif

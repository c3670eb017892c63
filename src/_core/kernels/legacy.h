/* Messages of magic 0 and 1, Kafka's formats before 0.11: read only. */
#ifndef REPLOG_LEGACY_H
#define REPLOG_LEGACY_H

#include <stdbool.h>

#include "bytes.h"

enum {
    /* CRC, magic, attributes, two lengths: bytes that the size field counts besides key and
     * value */
    LEGACY_OVERHEAD_0 = 14,
    LEGACY_OVERHEAD_1 = 22,  /* and a timestamp */
    LEGACY_PREFIX_SIZE = 17  /* up to the magic */
};

/* One message as it stands; of a compressed one the value holds others. Pointers are borrowed; NULL
 * with size -1 means null. */
typedef struct {
    int64_t offset;    /* of a compressed message: that of its last inner one */
    int64_t timestamp; /* -1 for magic 0 */
    const uint8_t *key;
    const uint8_t *value;
    int32_t key_size;
    int32_t value_size;
    int32_t size;      /* of all of it, offset and size fields included */
    int8_t magic;      /* 0 or 1 */
    int8_t attributes;
} legacy_message;

/* Whether a message of magic 0 or 1 might begin at p. */
static inline bool legacy_begins(const uint8_t *p, const uint8_t *end) {
    return end - p >= LEGACY_PREFIX_SIZE && p[16] <= 1;
}

/* Read the message at p. Returns 1; 0 when it is not all in [p, end); STATUS_MAGIC, STATUS_LENGTH,
 * STATUS_CRC (the CRC-32 of zlib), or STATUS_ORDER for a negative offset. */
int legacy_read(const uint8_t *p, const uint8_t *end, legacy_message *out);

/* CRC-32 as zlib and Ethernet have it. */
uint32_t crc32_ieee(const uint8_t *p, size_t size);

#endif

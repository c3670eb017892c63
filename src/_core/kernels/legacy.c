#include "legacy.h"

/* Four bits at a time: these messages are rare, and a table of 16 needs no initialization and no
 * cache. */
static const uint32_t NIBBLES[16] = {
    0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4, 0x4DB26158, 0x5005713C,
    0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C, 0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C,
};

uint32_t crc32_ieee(const uint8_t *p, size_t size) {
    uint32_t crc = 0xFFFFFFFF;
    for (const uint8_t *const end = p + size; p < end; p++) {
        crc ^= *p;
        crc = (crc >> 4) ^ NIBBLES[crc & 15];
        crc = (crc >> 4) ^ NIBBLES[crc & 15];
    }
    return ~crc;
}

/* A length and as many bytes; -1 is null. */
static int take_field(cursor *c, const uint8_t **field, int32_t *size) {
    const uint8_t *const p = cursor_take(c, 4);
    if (p == NULL) {
        return STATUS_LENGTH;
    }
    *size = load_i32(p);
    *field = NULL;
    if (*size == -1) {
        return STATUS_OK;
    }
    if (*size < -1 || (*field = cursor_take(c, (size_t)*size)) == NULL) {
        return STATUS_LENGTH;
    }
    return STATUS_OK;
}

int legacy_read(const uint8_t *p, const uint8_t *end, legacy_message *out) {
    if (end - p < LEGACY_PREFIX_SIZE) {
        return 0;
    }
    const uint8_t magic = p[16];
    if (magic > 1) {
        return STATUS_MAGIC;
    }
    const int32_t length = load_i32(p + 8);
    if (length < (magic == 0 ? LEGACY_OVERHEAD_0 : LEGACY_OVERHEAD_1) || length > INT32_MAX - 12) {
        return STATUS_LENGTH;
    }
    if (end - p - 12 < length) {
        return 0;
    }
    if (crc32_ieee(p + 16, (size_t)length - 4) != load_u32(p + 12)) {
        return STATUS_CRC;
    }
    out->offset = load_i64(p);
    out->size = length + 12;
    out->magic = (int8_t)magic;
    out->attributes = (int8_t)p[17];
    out->timestamp = magic == 0 ? -1 : load_i64(p + 18);
    cursor c = {p + (magic == 0 ? 18 : 26), p + 12 + length};
    if (take_field(&c, &out->key, &out->key_size) < 0 || take_field(&c, &out->value, &out->value_size) < 0 ||
        c.p != c.end) {
        return STATUS_LENGTH;
    }
    return out->offset < 0 || out->offset == INT64_MAX ? STATUS_ORDER : 1;
}

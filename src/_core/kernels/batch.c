#include "batch.h"

#include "crc32c.h"

/* -- batch header -- */

int64_t batch_size_at(const uint8_t *p, const uint8_t *end) {
    if (end - p < BATCH_LOG_OVERHEAD) {
        return 0;
    }
    const int32_t length = load_i32(p + 8);
    if (length < BATCH_LENGTH_MIN_ANY) {
        return STATUS_LENGTH;
    }
    return (int64_t)length + BATCH_LOG_OVERHEAD;
}

int batch_header_read(const uint8_t *p, const uint8_t *end, batch_header *out) {
    const int64_t size = batch_size_at(p, end);
    if (size < 0) {
        return (int)size;
    }
    if (end - p < BATCH_PREFIX_SIZE) {
        return STATUS_CUT;
    }
    if (p[16] != BATCH_MAGIC) {
        return STATUS_MAGIC;
    }
    if (size < BATCH_HEADER_SIZE || size > INT32_MAX) {
        return STATUS_LENGTH;
    }
    if (end - p < BATCH_HEADER_SIZE) {
        return STATUS_CUT;
    }
    out->base_offset = load_i64(p);
    out->size = (int32_t)size;
    out->leader_epoch = load_i32(p + 12);
    out->crc = load_u32(p + 17);
    out->attributes = load_i16(p + 21);
    out->last_offset_delta = load_i32(p + 23);
    out->base_timestamp = load_i64(p + 27);
    out->max_timestamp = load_i64(p + 35);
    out->producer_id = load_i64(p + 43);
    out->producer_epoch = load_i16(p + 51);
    out->base_sequence = load_i32(p + 53);
    out->record_count = load_i32(p + 57);
    if (out->record_count < 0) {
        return STATUS_ABSURD;
    }
    /* So that the last offset and the one behind it are int64s everywhere else. */
    if (out->base_offset < 0 || out->last_offset_delta < 0 ||
        out->base_offset > INT64_MAX - 1 - out->last_offset_delta) {
        return STATUS_ORDER;
    }
    return STATUS_OK;
}

int batch_read(const uint8_t *p, const uint8_t *end, batch_header *out) {
    const int status = batch_header_read(p, end, out);
    if (status < 0) {
        return status;
    }
    return end - p < out->size ? STATUS_CUT : STATUS_OK;
}

int batch_check_crc(const uint8_t *p, size_t size) {
    const uint32_t crc = crc32c(0, p + BATCH_CRC_START, size - BATCH_CRC_START);
    return crc == load_u32(p + BATCH_CRC_POSITION) ? STATUS_OK : STATUS_CRC;
}

void batch_header_write(uint8_t *p, batch_header *h) {
    store_i64(p, h->base_offset);
    store_i32(p + 8, h->size - BATCH_LOG_OVERHEAD);
    store_i32(p + 12, h->leader_epoch);
    p[16] = BATCH_MAGIC;
    store_i16(p + 21, h->attributes);
    store_i32(p + 23, h->last_offset_delta);
    store_i64(p + 27, h->base_timestamp);
    store_i64(p + 35, h->max_timestamp);
    store_i64(p + 43, h->producer_id);
    store_i16(p + 51, h->producer_epoch);
    store_i32(p + 53, h->base_sequence);
    store_i32(p + 57, h->record_count);
    h->crc = crc32c(0, p + BATCH_CRC_START, (size_t)h->size - BATCH_CRC_START);
    store_u32(p + BATCH_CRC_POSITION, h->crc);
}

/* -- records -- */

/* A length varint and that many bytes. Negative lengths all mean null, as Kafka's reader has it. */
static inline int read_nullable(cursor *c, const uint8_t **data, int32_t *size) {
    const int status = varint_read(c, size);
    if (status < 0) {
        return status;
    }
    if (*size < 0) {
        *data = NULL;
        *size = -1;
        return STATUS_OK;
    }
    *data = cursor_take(c, (size_t)*size);
    return *data == NULL ? STATUS_CUT : STATUS_OK;
}

int header_read(cursor *c, record_header *out) {
    const int status = read_nullable(c, &out->key, &out->key_size);
    if (status < 0) {
        return status;
    }
    if (out->key == NULL) {
        return STATUS_HEADER_KEY;
    }
    return read_nullable(c, &out->value, &out->value_size);
}

/* The headers of a record, up to the end of its body. */
static int read_headers(cursor *body, batch_record *out) {
    int status = varint_read(body, &out->header_count);
    if (status < 0) {
        return status;
    }
    /* A header takes two bytes at least: a count beyond that is refused before any loop. */
    if (out->header_count < 0 || (size_t)out->header_count > cursor_left(body) / 2) {
        return STATUS_ABSURD;
    }
    out->headers = body->p;
    for (int32_t i = 0; i < out->header_count; i++) {
        record_header ignored;
        status = header_read(body, &ignored);
        if (status < 0) {
            return status;
        }
    }
    out->headers_size = (int32_t)(body->p - out->headers);
    return STATUS_OK;
}

int record_read(cursor *c, batch_record *out) {
    cursor rest = *c;
    int32_t length;
    int status = varint_read(&rest, &length);
    if (status < 0) {
        return status;
    }
    if (length < 0) {
        return STATUS_LENGTH;
    }
    const uint8_t *p = cursor_take(&rest, (size_t)length);
    if (p == NULL) {
        return STATUS_CUT;
    }
    cursor body = {p, rest.p};
    if (cursor_take(&body, 1) == NULL) { /* attributes: unused */
        return STATUS_CUT;
    }
    if ((status = varlong_read(&body, &out->timestamp_delta)) < 0 ||
        (status = varint_read(&body, &out->offset_delta)) < 0 ||
        (status = read_nullable(&body, &out->key, &out->key_size)) < 0 ||
        (status = read_nullable(&body, &out->value, &out->value_size)) < 0 || (status = read_headers(&body, out)) < 0) {
        return status;
    }
    if (body.p != body.end) {
        return STATUS_LENGTH;
    }
    *c = rest;
    return STATUS_OK;
}

int batch_check_records(const batch_header *h, const uint8_t *p, const uint8_t *end, int64_t *position,
                        int64_t *max_timestamp) {
    cursor c = {p, end};
    batch_record record;
    int64_t greatest = -1;
    int32_t previous = -1;
    bool dense = true;
    for (int32_t i = 0; i < h->record_count; i++) {
        *position = c.p - p;
        if (c.p == c.end) {
            return STATUS_COUNT;
        }
        const int status = record_read(&c, &record);
        if (status < 0) {
            return status;
        }
        if (record.offset_delta <= previous || record.offset_delta > h->last_offset_delta) {
            return STATUS_ORDER;
        }
        const int64_t timestamp = batch_record_timestamp(h, record.timestamp_delta);
        greatest = timestamp > greatest ? timestamp : greatest;
        dense = dense && record.offset_delta == i;
        previous = record.offset_delta;
    }
    *position = c.p - p;
    if (c.p != c.end) {
        return STATUS_TRAILING;
    }
    *max_timestamp = greatest;
    return dense && previous == h->last_offset_delta;
}

/* Whether the bytes of a part end inside the record at the cursor. */
static bool record_is_cut(cursor c) {
    int32_t length;
    const int status = varint_read(&c, &length);
    return status == STATUS_CUT || (status == STATUS_OK && length >= 0 && (size_t)length > cursor_left(&c));
}

int batch_check_part(const batch_header *h, const uint8_t *p, const uint8_t *end, bool last, batch_part *part,
                     int64_t *position) {
    cursor c = {p, end};
    batch_record record;
    part->count = 0;
    while (part->left > 0 && (last || !record_is_cut(c))) {
        *position = c.p - p;
        if (c.p == c.end) {
            return STATUS_COUNT;
        }
        const int status = record_read(&c, &record);
        if (status < 0) {
            return status;
        }
        if (record.offset_delta <= part->previous || record.offset_delta > h->last_offset_delta) {
            return STATUS_ORDER;
        }
        part->previous = record.offset_delta;
        part->left--;
        part->count++;
    }
    *position = c.p - p;
    part->size = c.p - p;
    return part->left == 0 && c.p != c.end ? STATUS_TRAILING : STATUS_OK;
}

int batch_find_timestamp(const batch_header *h, const uint8_t *p, const uint8_t *end, int64_t timestamp,
                         int64_t start_offset, int64_t *offset, int64_t *found, int64_t *position) {
    cursor c = {p, end};
    batch_record record;
    for (int32_t i = 0; i < h->record_count; i++) {
        *position = c.p - p;
        if (c.p == c.end) {
            return STATUS_COUNT;
        }
        /* Of most records only length and timestamp count. */
        cursor rest = c;
        int32_t length;
        int status = varint_read(&rest, &length);
        if (status < 0) {
            return status;
        }
        if (length < 1 || cursor_take(&rest, (size_t)length) == NULL) {
            return length < 0 ? STATUS_LENGTH : STATUS_CUT;
        }
        cursor body = {rest.p - length + 1, rest.p};
        if ((status = varlong_read(&body, &record.timestamp_delta)) < 0) {
            return status;
        }
        *found = batch_record_timestamp(h, record.timestamp_delta);
        if (*found < timestamp) {
            c = rest;
            continue;
        }
        if ((status = record_read(&c, &record)) < 0) {
            return status;
        }
        if (record.offset_delta < 0 || record.offset_delta > h->last_offset_delta) {
            return STATUS_ORDER;
        }
        *offset = h->base_offset + record.offset_delta;
        if (*offset >= start_offset) {
            return 1;
        }
    }
    return 0;
}

/* -- writing -- */

static inline int64_t nullable_size(int64_t size) {
    return size < 0 ? 1 : (int64_t)varint_size((int32_t)size) + size;
}

static inline uint8_t *write_nullable(uint8_t *p, const uint8_t *data, int64_t size) {
    p = varint_write(p, (int32_t)size);
    if (size > 0) {
        memcpy(p, data, (size_t)size);
        p += size;
    }
    return p;
}

static inline int64_t body_size(int64_t timestamp_delta, int32_t offset_delta, int64_t key_size, int64_t value_size,
                                int32_t header_count, int64_t headers_size) {
    return 1 + (int64_t)varlong_size(timestamp_delta) + (int64_t)varint_size(offset_delta) + nullable_size(key_size) +
           nullable_size(value_size) + (int64_t)varint_size(header_count) + headers_size;
}

int64_t record_size(int64_t timestamp_delta, int32_t offset_delta, int64_t key_size, int64_t value_size,
                    int32_t header_count, int64_t headers_size) {
    const int64_t body = body_size(timestamp_delta, offset_delta, key_size, value_size, header_count, headers_size);
    return body + (int64_t)uvarint_size((uint64_t)body << 1);
}

uint8_t *record_write(uint8_t *p, const uint8_t *end, int64_t timestamp_delta, int32_t offset_delta, const uint8_t *key,
                      int64_t key_size, const uint8_t *value, int64_t value_size, int32_t header_count,
                      int64_t headers_size) {
    if (key_size > INT32_MAX || value_size > INT32_MAX || headers_size > INT32_MAX) {
        return NULL;
    }
    const int64_t body = body_size(timestamp_delta, offset_delta, key_size, value_size, header_count, headers_size);
    if (body > INT32_MAX || body + (int64_t)varint_size((int32_t)body) > end - p) {
        return NULL;
    }
    p = varint_write(p, (int32_t)body);
    *p++ = 0; /* attributes */
    p = varlong_write(p, timestamp_delta);
    p = varint_write(p, offset_delta);
    p = write_nullable(p, key, key_size < 0 ? -1 : key_size);
    p = write_nullable(p, value, value_size < 0 ? -1 : value_size);
    return varint_write(p, header_count);
}

int64_t header_size(int64_t key_size, int64_t value_size) {
    return nullable_size(key_size) + nullable_size(value_size);
}

uint8_t *header_write(uint8_t *p, const uint8_t *end, const uint8_t *key, int64_t key_size, const uint8_t *value,
                      int64_t value_size) {
    if (key_size < 0 || key_size > INT32_MAX || value_size > INT32_MAX || header_size(key_size, value_size) > end - p) {
        return NULL;
    }
    p = write_nullable(p, key, key_size);
    return write_nullable(p, value, value_size < 0 ? -1 : value_size);
}

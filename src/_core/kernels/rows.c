#include "rows.h"

#include "foreign.h"
#include "status.h"
#include "utf8.h"
#include "xxh64.h"

/* The bytes of one row: NULL and -1 if it is null, NULL and STATUS_LENGTH if its offsets are
 * invalid. */
static inline const uint8_t *binary_at(const rows_binary *c, int64_t row, int64_t *size) {
    if (c->offsets == NULL || !is_valid(c->validity, c->first + row)) {
        *size = -1;
        return NULL;
    }
    const int32_t start = i32_at(c->offsets, c->first + row);
    const int32_t end = i32_at(c->offsets, c->first + row + 1);
    *size = (int64_t)end - start;
    if (start < 0 || *size < 0 || end > c->data_size || (*size > 0 && c->data == NULL)) {
        *size = STATUS_LENGTH;
        return NULL;
    }
    /* An empty column may come without data. */
    return *size == 0 ? (const uint8_t *)"" : c->data + start;
}

uint32_t murmur2(const uint8_t *p, size_t size) {
    const uint32_t m = 0x5BD1E995;
    uint32_t h = 0x9747B28C ^ (uint32_t)size;
    for (; size >= 4; p += 4, size -= 4) {
        uint32_t k = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        k *= m;
        k ^= k >> 24;
        h = h * m ^ k * m;
    }
    if (size >= 3) {
        h ^= (uint32_t)p[2] << 16;
    }
    if (size >= 2) {
        h ^= (uint32_t)p[1] << 8;
    }
    if (size >= 1) {
        h = (h ^ p[0]) * m;
    }
    h = (h ^ h >> 13) * m;
    return h ^ h >> 15;
}

int64_t rows_place(const rows *r, int64_t count, int32_t partition_count, int32_t keyless, int32_t *out) {
    for (int64_t row = 0; row < count; row++) {
        const rows_fixed *column = &r->partition;
        int64_t size;
        if (column->values != NULL && is_valid(column->validity, column->first + row)) {
            const int32_t asked = i32_at(column->values, column->first + row);
            if (asked < 0 || asked >= partition_count) {
                return row;
            }
            out[row] = asked;
            continue;
        }
        const uint8_t *key = binary_at(&r->key, row, &size);
        out[row] =
            key == NULL ? keyless : (int32_t)((murmur2(key, (size_t)size) & 0x7FFFFFFF) % (uint32_t)partition_count);
    }
    return count;
}

void rows_group(const int32_t *partitions, int64_t count, int32_t partition_count, int64_t *starts, int32_t *order) {
    memset(starts, 0, ((size_t)partition_count + 1) * sizeof *starts);
    for (int64_t row = 0; row < count; row++) {
        starts[partitions[row] + 1]++;
    }
    for (int32_t i = 0; i < partition_count; i++) {
        starts[i + 1] += starts[i];
    }
    /* Each start moves to the next one's while its rows are put; then all go back by one place. */
    for (int64_t row = 0; row < count; row++) {
        order[starts[partitions[row]]++] = (int32_t)row;
    }
    memmove(starts + 1, starts, (size_t)partition_count * sizeof *starts);
    starts[0] = 0;
}

/* Floor, so that a moment within a millisecond belongs to it before 1970, too. */
static inline int64_t milliseconds(int64_t microseconds) {
    return microseconds / 1000 - (microseconds % 1000 < 0);
}

/* Bytes of the headers [first, last) as encoded, or a status. */
static int64_t headers_size(const rows *r, int64_t first, int64_t last) {
    int64_t total = 0;
    for (int64_t i = first; i < last; i++) {
        int64_t key_size, value_size;
        if (!is_valid(r->header.validity, r->header.first + i)) {
            return STATUS_HEADER_KEY;
        }
        const uint8_t *key = binary_at(&r->header_key, i, &key_size);
        if (key == NULL) {
            return key_size < -1 ? STATUS_LENGTH : STATUS_HEADER_KEY;
        }
        if (!utf8_is_valid(key, key + key_size)) {
            return STATUS_UTF8;
        }
        (void)binary_at(&r->header_value, i, &value_size);
        if (value_size < -1) {
            return STATUS_LENGTH;
        }
        total += header_size(key_size, value_size);
    }
    return total;
}

static inline const uint8_t *past_varint(const uint8_t *p) {
    while (*p++ & 0x80) {
    }
    return p;
}

/* The hash that a row adds to the sum of its batch. [p, end) is the record just written. */
static inline uint64_t hash_of(const rows *r, int64_t row, uint64_t seed, const uint8_t *p, const uint8_t *end) {
    /* Length, attributes and two deltas come first. They depend on the batch and on the clock, so
     * they are left out. */
    p = past_varint(past_varint(past_varint(p) + 1));
    if (r->partition.values != NULL && is_valid(r->partition.validity, r->partition.first + row)) {
        seed += (uint64_t)i32_at(r->partition.values, r->partition.first + row) + 1;
    }
    return xxh64(p, (size_t)(end - p), seed);
}

int64_t rows_append(const rows *r, const int32_t *order, int64_t start, int64_t end, int64_t timestamp, rows_batch *b,
                    int64_t *needed) {
    for (int64_t i = start; i < end; i++) {
        const int64_t row = order[i];
        int64_t key_size, value_size, encoded = 0, at = timestamp;
        int32_t header_count = 0, header_first = 0;
        const uint8_t *key = binary_at(&r->key, row, &key_size);
        const uint8_t *value = binary_at(&r->value, row, &value_size);
        if (key_size < -1 || value_size < -1) {
            *needed = row;
            return STATUS_LENGTH;
        }
        if (r->timestamp.values != NULL && is_valid(r->timestamp.validity, r->timestamp.first + row)) {
            at = milliseconds(i64_at(r->timestamp.values, r->timestamp.first + row));
            if (at < 0 || at > TIMESTAMP_MAX) {
                *needed = row;
                return STATUS_RANGE;
            }
        }
        if (r->headers.offsets != NULL && is_valid(r->headers.validity, r->headers.first + row)) {
            const int32_t header_last = i32_at(r->headers.offsets, r->headers.first + row + 1);
            header_first = i32_at(r->headers.offsets, r->headers.first + row);
            if (header_first < 0 || header_last < header_first || header_last > r->header_count) {
                *needed = row;
                return STATUS_LENGTH;
            }
            header_count = header_last - header_first;
            encoded = headers_size(r, header_first, (int64_t)header_first + header_count);
            if (encoded < 0) {
                *needed = row;
                return encoded;
            }
        }
        const int64_t base = b->record_count == 0 ? at : b->base_timestamp;
        const int64_t delta = subtract_wrapping(at, base);
        const int64_t size = record_size(delta, b->record_count, key_size, value_size, header_count, encoded);
        if (size > INT32_MAX) {
            *needed = row;
            return STATUS_ABSURD;
        }
        if (size > b->capacity - b->used || (b->record_count > 0 && size > b->target - b->used)) {
            *needed = b->used + size;
            return i;
        }
        const uint8_t *limit = b->p + b->capacity;
        uint8_t *p = record_write(b->p + b->used, limit, delta, b->record_count, key, key_size, value, value_size,
                                  header_count, encoded);
        for (int64_t h = header_first; p != NULL && h < (int64_t)header_first + header_count; h++) {
            int64_t name_size, text_size;
            const uint8_t *name = binary_at(&r->header_key, h, &name_size);
            const uint8_t *text = binary_at(&r->header_value, h, &text_size);
            p = header_write(p, limit, name, name_size, text, text_size);
        }
        if (p == NULL) { /* cannot be: its size was asked for just now */
            *needed = row;
            return STATUS_SPACE;
        }
        b->sum += hash_of(r, row, b->seed, b->p + b->used, p);
        b->used = p - b->p;
        b->base_timestamp = base;
        b->max_timestamp = b->record_count == 0 || at > b->max_timestamp ? at : b->max_timestamp;
        b->record_count++;
    }
    return end;
}

#include "table.h"

#include "foreign.h"
#include "status.h"
#include "utf8.h"

enum { VIEW_SIZE = 16, VIEW_INLINE_MAX = 12, VIEW_BUFFER_POSITION = 8, VIEW_OFFSET_POSITION = 12 };

/* The bytes of one row; NULL and -1 if it is null. Never NULL if it is empty: an empty column may
 * come without data. */
static inline const uint8_t *bytes_at(const table_bytes *c, int64_t row, int64_t *size) {
    const int64_t i = c->first + row;
    if (c->layout == TABLE_NONE || !is_valid(c->validity, i)) {
        *size = -1;
        return NULL;
    }
    const uint8_t *data = c->data;
    int64_t start;
    switch (c->layout) {
    case TABLE_SMALL:
        start = i32_at(c->places, i);
        *size = i32_at(c->places, i + 1) - start;
        break;
    case TABLE_LARGE:
        start = i64_at(c->places, i);
        *size = i64_at(c->places, i + 1) - start;
        break;
    case TABLE_VIEW: {
        const uint8_t *view = (const uint8_t *)c->places + i * VIEW_SIZE;
        *size = i32_at(view, 0);
        if (*size <= VIEW_INLINE_MAX) {
            return view + 4;
        }
        data = c->buffers[i32_at(view + VIEW_BUFFER_POSITION, 0)];
        start = i32_at(view + VIEW_OFFSET_POSITION, 0);
        break;
    }
    default:
        start = i * c->width;
        *size = c->width;
        break;
    }
    return *size == 0 ? (const uint8_t *)"" : data + start;
}

/* The size of one row (-1: it is null), and whether its bytes may be where its column says:
 * bytes_at may be asked. */
static inline bool leads_somewhere(const table_bytes *c, int64_t row, int64_t *size) {
    const int64_t i = c->first + row;
    int64_t start, end;
    *size = -1;
    if (c->layout == TABLE_NONE || !is_valid(c->validity, i)) {
        return true;
    }
    switch (c->layout) {
    case TABLE_SMALL:
        start = i32_at(c->places, i);
        end = i32_at(c->places, i + 1);
        break;
    case TABLE_LARGE:
        start = i64_at(c->places, i);
        end = i64_at(c->places, i + 1);
        break;
    case TABLE_VIEW: {
        const uint8_t *view = (const uint8_t *)c->places + i * VIEW_SIZE;
        *size = i32_at(view, 0);
        if (*size <= VIEW_INLINE_MAX) {
            return *size >= 0;
        }
        const int64_t number = i32_at(view + VIEW_BUFFER_POSITION, 0);
        start = i32_at(view + VIEW_OFFSET_POSITION, 0);
        if (number < 0 || number >= c->buffer_count || c->buffers[number] == NULL) {
            return false;
        }
        end = i64_at(c->buffer_sizes, number);
        return start >= 0 && start <= end && *size <= end - start;
    }
    default: /* without offsets: the caller saw that there are bytes */
        *size = c->width;
        return true;
    }
    if (start < 0 || end < start || end > c->data_size || (end > start && c->data == NULL)) {
        return false;
    }
    *size = end - start;
    return true;
}

/* The headers [*first, *last) of a row. */
static inline void headers_at(const table_rows *t, int64_t row, int64_t *first, int64_t *last) {
    const int64_t i = t->headers.first + row;
    *first = *last = 0;
    if (t->headers.layout == TABLE_NONE || !is_valid(t->headers.validity, i)) {
        return;
    }
    switch (t->headers.layout) {
    case TABLE_SMALL:
        *first = i32_at(t->headers.places, i);
        *last = i32_at(t->headers.places, i + 1);
        break;
    case TABLE_LARGE:
        *first = i64_at(t->headers.places, i);
        *last = i64_at(t->headers.places, i + 1);
        break;
    case TABLE_VIEW: {
        const bool narrow = t->headers.width == 4;
        const int64_t count = narrow ? i32_at(t->headers.buffer_sizes, i) : i64_at(t->headers.buffer_sizes, i);
        *first = narrow ? i32_at(t->headers.places, i) : i64_at(t->headers.places, i);
        *last = add_wrapping(*first, count); /* below *first where that is absurd */
        break;
    }
    default: /* the caller saw that row numbers times the width stay within int64 */
        *first = i * t->headers.width;
        *last = *first + t->headers.width;
        break;
    }
}

static inline int64_t headers_size(const table_rows *t, int64_t first, int64_t last) {
    int64_t total = 0;
    for (int64_t i = first; i < last; i++) {
        int64_t key_size, value_size;
        (void)bytes_at(&t->header_key, i, &key_size);
        (void)bytes_at(&t->header_value, i, &value_size);
        total += header_size(key_size, value_size);
    }
    return total;
}

/* Floor division, so that a moment within a millisecond belongs to it before 1970, too. */
static inline int64_t divided(int64_t value, int64_t divisor) { return value / divisor - (value % divisor < 0); }

static inline int64_t time_at(const table_time *c, int64_t row, int64_t otherwise) {
    if (c->values == NULL) {
        return c->is_null ? -1 : otherwise;
    }
    if (!is_valid(c->validity, c->first + row)) {
        return -1;
    }
    const int64_t value = i64_at(c->values, c->first + row);
    return c->divisor > 1 ? divided(value, c->divisor) : value * c->multiplier;
}

static int check_row(const table_rows *t, int64_t row, int64_t size_max, bool *fits) {
    int64_t key_size, value_size, first, last, headers = 0;
    if (t->timestamp.values != NULL && is_valid(t->timestamp.validity, t->timestamp.first + row)) {
        const int64_t value = i64_at(t->timestamp.values, t->timestamp.first + row);
        const bool none = value == -1 && t->timestamp.is_number;
        if ((value < 0 && !none) || value / t->timestamp.divisor > TIMESTAMP_MAX / t->timestamp.multiplier) {
            return STATUS_RANGE;
        }
    }
    headers_at(t, row, &first, &last);
    if (first < 0 || last < first || last > t->header_count) {
        return STATUS_LENGTH;
    }
    for (int64_t i = first; i < last; i++) {
        if (!is_valid(t->header.validity, t->header.first + i)) {
            return STATUS_HEADER_KEY;
        }
        if (!leads_somewhere(&t->header_key, i, &key_size) || !leads_somewhere(&t->header_value, i, &value_size)) {
            return STATUS_LENGTH;
        }
        const uint8_t *key = bytes_at(&t->header_key, i, &key_size);
        if (key == NULL) {
            return STATUS_HEADER_KEY;
        }
        if (key_size > size_max || value_size > size_max || (headers += header_size(key_size, value_size)) > size_max) {
            *fits = false;
            return STATUS_OK;
        }
        if (!utf8_is_valid(key, key + key_size)) {
            return STATUS_UTF8;
        }
    }
    if (!leads_somewhere(&t->key, row, &key_size) || !leads_somewhere(&t->value, row, &value_size)) {
        return STATUS_LENGTH;
    }
    *fits = key_size <= size_max && value_size <= size_max && last - first <= size_max &&
            BATCH_HEADER_SIZE + record_size(0, 0, key_size, value_size, (int32_t)(last - first), headers) <= size_max;
    return STATUS_OK;
}

bool table_headers_empty(const table_rows *t, int64_t count) {
    for (int64_t row = 0; row < count; row++) {
        int64_t first, last;
        headers_at(t, row, &first, &last);
        if (first != last) {
            return false;
        }
    }
    return true;
}

int64_t table_time_at(const table_rows *t, int64_t row, int64_t otherwise) {
    return time_at(&t->timestamp, row, otherwise);
}

int64_t table_check(const table_rows *t, int64_t count, int64_t size_max, int64_t *row) {
    for (*row = 0; *row < count; (*row)++) {
        bool fits = true;
        const int status = check_row(t, *row, size_max, &fits);
        if (status < 0) {
            return status;
        }
        if (!fits) {
            return *row;
        }
    }
    return count;
}

int64_t table_encode(const table_rows *t, int64_t start, int64_t count, int64_t timestamp, table_batch *b) {
    for (int64_t row = start; row < count; row++) {
        int64_t key_size, value_size, first, last;
        const uint8_t *key = bytes_at(&t->key, row, &key_size);
        const uint8_t *value = bytes_at(&t->value, row, &value_size);
        const int64_t at = time_at(&t->timestamp, row, timestamp);
        const int64_t base = b->record_count == 0 ? at : b->base_timestamp;
        headers_at(t, row, &first, &last);
        const int64_t headers = first == last ? 0 : headers_size(t, first, last);
        const uint8_t *end = b->p + (b->record_count == 0 || b->capacity < b->target ? b->capacity : b->target);
        uint8_t *p = record_write(b->p + b->used, end, subtract_wrapping(at, base), b->record_count, key, key_size,
                                  value, value_size, (int32_t)(last - first), headers);
        if (p == NULL) {
            return row;
        }
        for (int64_t i = first; i < last; i++) { /* record_write saw to the room */
            const uint8_t *name = bytes_at(&t->header_key, i, &key_size);
            const uint8_t *text = bytes_at(&t->header_value, i, &value_size);
            p = header_write(p, end, name, key_size, text, value_size);
        }
        b->used = p - b->p;
        b->base_timestamp = base;
        b->max_timestamp = b->record_count == 0 || at > b->max_timestamp ? at : b->max_timestamp;
        b->record_count++;
    }
    return count;
}

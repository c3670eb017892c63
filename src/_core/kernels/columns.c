#include "columns.h"

#include "utf8.h"
#include "varint.h"

enum {
    RECORD_SIZE_MIN = 7,      /* length, attributes, two deltas, two lengths, header count: a byte each */
    RECORD_HEADER_SIZE_MIN = 2,
    COPY_BLOCK = 32,
    COPY_BLOCKS_MAX = 8
};

typedef struct {
    const uint8_t *data;  /* NULL where null */
    int64_t size;
} field;

/* Blocks of fixed size where both sides have room for whole ones: for the sizes records have, twice as fast as a call. */
static inline void copy(uint8_t *to, const uint8_t *to_end, const uint8_t *from, const uint8_t *from_end, int64_t size) {
    if (size <= COPY_BLOCKS_MAX * COPY_BLOCK && from_end - from >= size + COPY_BLOCK && to_end - to >= size + COPY_BLOCK) {
        for (int64_t done = 0; done < size; done += COPY_BLOCK) {
            memcpy(to + done, from + done, COPY_BLOCK);
        }
    } else if (size > 0) {
        memcpy(to, from, (size_t)size);
    }
}

static inline void clear_bit(uint8_t *bits, int64_t index) { bits[index >> 3] &= (uint8_t)~(1U << (index & 7)); }

/* Set the bits [from, to): those of rows that were begun and are given up. */
static void set_bits(uint8_t *bits, int64_t from, int64_t to) {
    for (int64_t index = from; index < to; index++) {
        bits[index >> 3] |= (uint8_t)(1U << (index & 7));
    }
}

/* A length varint and so many bytes. A negative length is null. */
static inline int field_read(cursor *c, field *out) {
    int32_t size;
    const int status = varint_read(c, &size);
    if (status < 0) {
        return status;
    }
    if (size < 0) {
        out->data = NULL;
        out->size = 0;
        return STATUS_OK;
    }
    out->data = cursor_take(c, (size_t)size);
    out->size = size;
    return out->data == NULL ? STATUS_CUT : STATUS_OK;
}

/* REQUIRES room for the row and its bytes. `from_end`: how far the bytes around the field may be read. */
static inline void put(binary_column *column, int64_t row, const field *from, const uint8_t *from_end) {
    if (from->data != NULL) {
        copy(column->data + column->size, column->data + column->capacity, from->data, from_end, from->size);
        column->size += from->size;
    } else {
        clear_bit(column->validity, row);
        column->null_count++;
    }
    column->offsets[row + 1] = (int32_t)column->size;
}

/* The headers of a record, up to the end of its body. */
static int put_headers(columns *c, cursor *body, const uint8_t *from_end) {
    int32_t count;
    int status = varint_read(body, &count);
    if (status < 0) {
        return status;
    }
    if (count < 0 || (size_t)count > cursor_left(body) / RECORD_HEADER_SIZE_MIN) {
        return STATUS_ABSURD;
    }
    if (count > c->header_capacity - c->header_count) {
        return STATUS_SPACE;
    }
    for (int32_t i = 0; i < count; i++) {
        field key;
        field value;
        if ((status = field_read(body, &key)) < 0 || (status = field_read(body, &value)) < 0) {
            return status;
        }
        if (key.data == NULL) {
            return STATUS_HEADER_KEY;
        }
        if (!utf8_is_valid(key.data, key.data + key.size)) {
            return STATUS_UTF8;
        }
        put(&c->header_key, c->header_count, &key, from_end);
        put(&c->header_value, c->header_count, &value, from_end);
        c->header_count++;
    }
    return body->p == body->end ? STATUS_OK : STATUS_LENGTH;
}

static bool has_space(const columns *c, int64_t rows, int64_t bytes) {
    return c->row_capacity - c->row_count >= rows
        && ((c->wanted & COLUMN_KEY) == 0 || c->key.capacity - c->key.size >= bytes)
        && ((c->wanted & COLUMN_VALUE) == 0 || c->value.capacity - c->value.size >= bytes)
        && ((c->wanted & COLUMN_HEADERS) == 0
            || (c->header_key.capacity - c->header_key.size >= bytes && c->header_value.capacity - c->header_value.size >= bytes));
}

/* The loop over records: from the first field that nobody wants, the rest of a record is skipped by its length.
 * REQUIRES has_space. On a status `rest` is at the bad record, and what belongs to the rows of this batch is in between. */
static int fill(columns *c, const columns_selection *selection, const batch_header *h, cursor *rest) {
    const uint32_t wanted = c->wanted;
    const bool wants_body = (wanted & (COLUMN_KEY | COLUMN_VALUE | COLUMN_HEADERS)) != 0;
    const uint8_t *const from_end = rest->end;
    /* Copies, so that the compiler knows that storing bytes does not change them. */
    binary_column keys = c->key;
    binary_column values = c->value;
    int64_t *const offsets = c->offset;
    int64_t *const timestamps = c->timestamp;
    int64_t row = c->row_count;
    int32_t previous = -1;
    int status = STATUS_OK;
    for (int32_t i = 0; i < h->record_count; i++) {
        cursor body = *rest;
        int32_t length;
        int32_t offset_delta;
        int64_t timestamp_delta;
        if (body.p == body.end) {
            status = STATUS_COUNT;
            break;
        }
        if ((status = varint_read(&body, &length)) < 0) {
            break;
        }
        if (length < 1 || (size_t)length > cursor_left(&body)) {
            status = length < 1 ? STATUS_LENGTH : STATUS_CUT;
            break;
        }
        body.end = body.p + length;
        body.p++; /* attributes: unused */
        if ((status = varlong_read(&body, &timestamp_delta)) < 0 || (status = varint_read(&body, &offset_delta)) < 0) {
            break;
        }
        if (offset_delta <= previous || offset_delta > h->last_offset_delta) {
            status = STATUS_ORDER;
            break;
        }
        previous = offset_delta;
        const int64_t offset = h->base_offset + offset_delta;
        const int64_t timestamp = batch_record_timestamp(h, timestamp_delta);
        if (offset < selection->start_offset || offset >= selection->end_offset
            || (selection->timed
                && (timestamp == -1 || timestamp < selection->first_timestamp || timestamp > selection->last_timestamp))) {
            rest->p = body.end;
            continue;
        }
        if (wants_body) {
            field key;
            field value;
            if ((status = field_read(&body, &key)) < 0 || (status = field_read(&body, &value)) < 0) {
                break;
            }
            if (wanted & COLUMN_HEADERS) {
                if (cursor_left(&body) == 1 && *body.p == 0) {
                    /* No headers: nearly always. */
                } else if ((status = put_headers(c, &body, from_end)) < 0) {
                    break;
                }
                c->header_offsets[row + 1] = (int32_t)c->header_count;
            }
            if (wanted & COLUMN_KEY) {
                put(&keys, row, &key, from_end);
            }
            if (wanted & COLUMN_VALUE) {
                put(&values, row, &value, from_end);
            }
        }
        if (wanted & COLUMN_OFFSET) {
            offsets[row] = offset;
        }
        if (wanted & COLUMN_TIMESTAMP) {
            timestamps[row] = timestamp;
            if (timestamp == -1) {
                timestamps[row] = 0;
                clear_bit(c->timestamp_validity, row);
                c->timestamp_null_count++;
            }
        }
        rest->p = body.end;
        row++;
    }
    c->key = keys;
    c->value = values;
    c->row_count = row;
    if (status == STATUS_OK && rest->p != rest->end) {
        status = STATUS_TRAILING;
    }
    return status;
}

/* Columns with one value for the whole batch. */
static void fill_constant(columns *c, const columns_selection *selection, const batch_header *h, int64_t from) {
    const int64_t to = c->row_count;
    if (from == to) {
        return; /* before the first row the arrays may be NULL */
    }
    if (c->wanted & COLUMN_PARTITION) {
        for (int64_t row = from; row < to; row++) {
            c->partition[row] = selection->partition;
        }
    }
    if (c->wanted & COLUMN_TIMESTAMP_TYPE) {
        memset(c->timestamp_type + from, (h->attributes & ATTRIBUTE_LOG_APPEND_TIME) ? 1 : batch_is_timeless(h) ? -1 : 0, (size_t)(to - from));
    }
    if (c->wanted & COLUMN_LEADER_EPOCH) {
        for (int64_t row = from; row < to; row++) {
            c->leader_epoch[row] = h->leader_epoch;
        }
    }
}

/* Give up what a failed fill began. A row's bits are cleared only when nothing in it can fail any more. */
static void put_back(columns *c, const columns *before) {
    if (c->wanted & COLUMN_TIMESTAMP) {
        set_bits(c->timestamp_validity, before->row_count, c->row_count);
    }
    if (c->wanted & COLUMN_KEY) {
        set_bits(c->key.validity, before->row_count, c->row_count);
    }
    if (c->wanted & COLUMN_VALUE) {
        set_bits(c->value.validity, before->row_count, c->row_count);
    }
    if (c->wanted & COLUMN_HEADERS) {
        set_bits(c->header_value.validity, before->header_count, c->header_count);
    }
    *c = *before;
}

int64_t columns_append(columns *c, const columns_selection *selection, const batch_header *h, const uint8_t *p, const uint8_t *end,
                       columns_progress *progress) {
    const columns before = *c;
    cursor rest = {p, end};
    progress->position = 0;
    if (h->record_count > (end - p) / RECORD_SIZE_MIN) {
        return STATUS_ABSURD;
    }
    if (h->record_count == 0 && p < end) {
        return STATUS_TRAILING; // no rows, so the caller would take the lack of room for one of headers
    }
    progress->rows_needed = h->record_count;
    progress->bytes_needed = end - p;
    if (!has_space(c, progress->rows_needed, progress->bytes_needed)) {
        return STATUS_SPACE;
    }
    const int status = fill(c, selection, h, &rest);
    if (status < 0) {
        progress->rows_needed = 0;
        progress->position = rest.p - p;
        put_back(c, &before);
        return status;
    }
    fill_constant(c, selection, h, before.row_count);
    return c->row_count - before.row_count;
}

int columns_extend(columns *c, const columns_selection *selection, const uint8_t *p, const uint8_t *end, bool check_crc,
                   int64_t row_limit, int64_t size_limit, columns_progress *progress) {
    const uint8_t *at = p;
    progress->position = 0;
    while (at < end) {
        batch_header h;
        int status = batch_read(at, end, &h);
        progress->position = at - p;
        if (status == STATUS_CUT) {
            break;
        }
        if (status < 0) {
            return status;
        }
        if ((h.attributes & (ATTRIBUTE_CODEC | ATTRIBUTE_CONTROL)) != 0 || h.base_offset >= selection->end_offset
            || (c->row_count > 0
                && (c->row_count + h.record_count > row_limit || columns_size(c) + h.size - BATCH_HEADER_SIZE > size_limit))) {
            break;
        }
        if (batch_last_offset(&h) < selection->start_offset) {
            at += h.size;
            progress->next_offset = batch_last_offset(&h) + 1;
            continue;
        }
        if (check_crc && (status = batch_check_crc(at, (size_t)h.size)) < 0) {
            return status;
        }
        const int64_t added = columns_append(c, selection, &h, at + BATCH_HEADER_SIZE, at + h.size, progress);
        if (added < 0) {
            progress->position = added == STATUS_SPACE ? at - p : at - p + BATCH_HEADER_SIZE + progress->position;
            return (int)added;
        }
        at += h.size;
        progress->next_offset = batch_last_offset(&h) + 1;
    }
    progress->position = at - p;
    return STATUS_OK;
}

#include "columns.h"

#include "utf8.h"
#include "varint.h"

enum {
    RECORD_SIZE_MIN = 7,      /* length, attributes, two deltas, two lengths, header count: a byte each */
    RECORD_HEADER_SIZE_MIN = 2,
    COPY_BLOCK = 32,
    COPY_BLOCKS_MAX = 8,
    CACHE_LINE = 64,
    /* distance in bytes at which memory is prefetched before it is written: the columns are long,
     * so their ends are in no near cache */
    COPY_AHEAD = 1024,
    QUICK_SIZE_MAX = 4,       /* bytes of a varint that is read without looking for the end */
    SLOW_RUN = 16,            /* records taken carefully before the quick way is tried again */
    WANTED_MOST = COLUMN_OFFSET | COLUMN_TIMESTAMP | COLUMN_KEY | COLUMN_VALUE | COLUMN_HEADERS,
    /* bytes there must be behind a record for that: more than all that may be read past its end */
    QUICK_MARGIN = 32,
    WORD = 8,                 /* bytes compared at once */
    ALIKE_FEW = 8,            /* a run of fewer records that are alike was not worth the trial */
    /* records of one size in a row, after which it is tried at the latest whether they are alike */
    PATIENCE_MAX = 64
};

typedef struct {
    const uint8_t *data;  /* NULL where null */
    int64_t size;
} field;

/* Blocks of fixed size: for the sizes records have, twice as fast as a call. REQUIRES room for
 * another block behind both. */
static inline void copy_roomy(uint8_t *to, const uint8_t *from, int64_t size) {
    if (size > COPY_BLOCKS_MAX * COPY_BLOCK) {
        memcpy(to, from, (size_t)size);
        return;
    }
    for (int64_t done = 0; done < size; done += CACHE_LINE) {
        /* it may lie behind all of them */
        __builtin_prefetch((const void *)((uintptr_t)to + COPY_AHEAD + (uintptr_t)done), 1);
    }
    for (int64_t done = 0; done < size; done += COPY_BLOCK) {
        memcpy(to + done, from + done, COPY_BLOCK);
    }
}

static inline void copy(uint8_t *to, const uint8_t *to_end, const uint8_t *from, const uint8_t *from_end,
                        int64_t size) {
    if (from_end - from >= size + COPY_BLOCK && to_end - to >= size + COPY_BLOCK) {
        copy_roomy(to, from, size);
    } else if (size > 0) {
        memcpy(to, from, (size_t)size);
    }
}

static inline void clear_bit(uint8_t *bits, int64_t index) { bits[index >> 3] &= (uint8_t)~(1U << (index & 7)); }

/* Clear the bits [from, to). */
static void clear_bits(uint8_t *bits, int64_t from, int64_t to) {
    for (; from < to && (from & 7) != 0; from++) {
        clear_bit(bits, from);
    }
    if (from < to) {
        memset(bits + (from >> 3), 0, (size_t)((to - from) >> 3));
        for (from += (to - from) & ~(int64_t)7; from < to; from++) {
            clear_bit(bits, from);
        }
    }
}

/* Set the bits [from, to): those of rows that were begun and are given up. */
static void set_bits(uint8_t *bits, int64_t from, int64_t to) {
    for (int64_t index = from; index < to; index++) {
        bits[index >> 3] |= (uint8_t)(1U << (index & 7));
    }
}

/* Sixteen at a time, which is one or two stores. */
static void repeat(int32_t *to, int32_t value, int64_t count) {
    int32_t block[16];
    for (int i = 0; i < 16; i++) {
        block[i] = value;
    }
    int64_t done = 0;
    for (; done + 16 <= count; done += 16) {
        memcpy(to + done, block, sizeof block);
    }
    memcpy(to + done, block, (size_t)(count - done) * sizeof *to);
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

/* The rows [from, to) are null. */
static void put_nulls(binary_column *column, int64_t from, int64_t to) {
    clear_bits(column->validity, from, to);
    repeat(column->offsets + from + 1, column->offsets[from], to - from);
    column->null_count += to - from;
}

/* Read a non-negative integer of up to QUICK_SIZE_MAX bytes at p, without the zig-zag. Returns the
 * byte behind it, or NULL if it is longer. REQUIRES that many bytes. */
static inline const uint8_t *quick_read(const uint8_t *p, uint32_t *out) {
    uint32_t u = p[0];
    if (u < 0x80U) {
        *out = u;
        return p + 1;
    }
    u = (u & 0x7FU) | (uint32_t)p[1] << 7;
    if (u < 0x80U << 7) {
        *out = u;
        return p + 2;
    }
    u = (u & 0x3FFFU) | (uint32_t)p[2] << 14;
    if (u < 0x80U << 14) {
        *out = u;
        return p + 3;
    }
    u = (u & 0x1FFFFFU) | (uint32_t)p[3] << 21;
    *out = u;
    return u < 0x80U << 21 ? p + 4 : NULL;
}

/* Read a field of a quick record, as field_read does. Returns the byte behind it, or NULL if it is
 * not inside [p, end). REQUIRES QUICK_SIZE_MAX bytes. */
static inline const uint8_t *quick_field(const uint8_t *p, const uint8_t *end, field *out) {
    uint32_t u;
    p = quick_read(p, &u);
    if (p == NULL || p > end) {
        return NULL;
    }
    if (u & 1U) {
        out->data = NULL;
        out->size = 0;
        return p;
    }
    out->data = p;
    out->size = u >> 1;
    return out->size <= end - p ? p + out->size : NULL;
}

/* REQUIRES room for the row and its bytes. `from_end`: how far the bytes around the field may be
 * read. Nothing was written yet for the rows from `*pending` on, all of them null: that is done for
 * a run at once. */
static inline void put(binary_column *column, int64_t row, int64_t *pending, const field *from,
                       const uint8_t *from_end) {
    if (from->data != NULL) {
        if (*pending != row) {
            put_nulls(column, *pending, row);
        }
        *pending = row + 1;
        copy(column->data + column->size, column->data + column->capacity, from->data, from_end, from->size);
        column->size += from->size;
        column->offsets[row + 1] = (int32_t)column->size;
    }
}

/* As put, for a header's key that is not UTF-8, which an Arrow text has to be: with U+FFFD for the
 * wrong bytes. STATUS_UTF8 when there is no room for them, since has_space counts the bytes as they
 * are stored. */
static int put_replaced(binary_column *column, int64_t row, const field *from) {
    if (column->capacity - column->size < UTF8_GROWTH * from->size) {
        return STATUS_UTF8;
    }
    column->size = utf8_replace(column->data + column->size, from->data, from->data + from->size) - column->data;
    column->offsets[row + 1] = (int32_t)column->size;
    return STATUS_OK;
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
        int64_t pending = c->header_count;
        if (utf8_is_valid(key.data, key.data + key.size)) {
            put(&c->header_key, c->header_count, &pending, &key, from_end);
        } else if ((status = put_replaced(&c->header_key, c->header_count, &key)) < 0) {
            return status;
        }
        pending = c->header_count;
        put(&c->header_value, c->header_count, &pending, &value, from_end);
        if (value.data == NULL) {
            put_nulls(&c->header_value, c->header_count, c->header_count + 1);
        }
        c->header_count++;
    }
    return body->p == body->end ? STATUS_OK : STATUS_LENGTH;
}

/* -- one block for all rows -- */

static int64_t aligned(int64_t size) { return (size + 63) / 64 * 64; }

/* `size` bytes of a block at `*at`, the first `used` of them those at `from`. NULL, and nothing but
 * counted, without a block. */
static void *place(uint8_t *rows, int64_t *at, int64_t size, const void *from, int64_t used) {
    uint8_t *const to = rows == NULL ? NULL : rows + *at;
    *at += aligned(size);
    if (to != NULL && used > 0) {
        memcpy(to, from, (size_t)used);
    }
    return to;
}

static int32_t *place_starts(uint8_t *rows, int64_t *at, int64_t capacity, const int32_t *from, int64_t count) {
    int32_t *const to =
        place(rows, at, (capacity + 1) * (int64_t)sizeof *to, from, count == 0 ? 0 : (count + 1) * (int64_t)sizeof *to);
    if (to != NULL && count == 0) {
        to[0] = 0;
    }
    return to;
}

/* All bits of rows to come are 1. */
static uint8_t *place_bits(uint8_t *rows, int64_t *at, int64_t capacity, const uint8_t *from, int64_t count) {
    const int64_t used = (count + 7) / 8;
    const int64_t size = (capacity + 7) / 8;
    uint8_t *const to = place(rows, at, size, from, used);
    if (to != NULL) {
        memset(to + used, 0xFF, (size_t)(size - used));
    }
    return to;
}

static int64_t place_all(columns *c, uint8_t *rows, int64_t capacity) {
    const int64_t count = c->row_count;
    int64_t at = 0;
    if (c->wanted & COLUMN_PARTITION) {
        c->partition = place(rows, &at, capacity * (int64_t)sizeof *c->partition, c->partition,
                             count * (int64_t)sizeof *c->partition);
    }
    if (c->wanted & COLUMN_OFFSET) {
        c->offset =
            place(rows, &at, capacity * (int64_t)sizeof *c->offset, c->offset, count * (int64_t)sizeof *c->offset);
    }
    if (c->wanted & COLUMN_TIMESTAMP) {
        c->timestamp = place(rows, &at, capacity * (int64_t)sizeof *c->timestamp, c->timestamp,
                             count * (int64_t)sizeof *c->timestamp);
        c->timestamp_validity = place_bits(rows, &at, capacity, c->timestamp_validity, count);
    }
    if (c->wanted & COLUMN_TIMESTAMP_TYPE) {
        c->timestamp_type = place(rows, &at, capacity, c->timestamp_type, count);
    }
    if (c->wanted & COLUMN_LEADER_EPOCH) {
        c->leader_epoch = place(rows, &at, capacity * (int64_t)sizeof *c->leader_epoch, c->leader_epoch,
                                count * (int64_t)sizeof *c->leader_epoch);
    }
    if (c->wanted & COLUMN_KEY) {
        c->key.offsets = place_starts(rows, &at, capacity, c->key.offsets, count);
        c->key.validity = place_bits(rows, &at, capacity, c->key.validity, count);
    }
    if (c->wanted & COLUMN_VALUE) {
        c->value.offsets = place_starts(rows, &at, capacity, c->value.offsets, count);
        c->value.validity = place_bits(rows, &at, capacity, c->value.validity, count);
    }
    if (c->wanted & COLUMN_HEADERS) {
        c->header_offsets = place_starts(rows, &at, capacity, c->header_offsets, count);
    }
    c->row_capacity = capacity;
    return at;
}

int64_t columns_rows_size(const columns *c, int64_t capacity) {
    columns counted = *c;
    return place_all(&counted, NULL, capacity);
}

void columns_move(columns *c, uint8_t *rows, int64_t capacity) { place_all(c, rows, capacity); }

/* -- records -- */

static bool has_space(const columns *c, int64_t rows, int64_t bytes) {
    return c->row_capacity - c->row_count >= rows &&
           ((c->wanted & COLUMN_KEY) == 0 || c->key.capacity - c->key.size >= bytes) &&
           ((c->wanted & COLUMN_VALUE) == 0 || c->value.capacity - c->value.size >= bytes) &&
           ((c->wanted & COLUMN_HEADERS) == 0 || (c->header_key.capacity - c->header_key.size >= bytes &&
                                                  c->header_value.capacity - c->header_value.size >= bytes));
}

/* The position of a walk over the records of a batch. */
typedef struct {
    cursor rest;          /* from the next record on */
    int32_t left;         /* records, that one included */
    int32_t previous;     /* offset delta of the one before; -1 before the first */
    int64_t row;          /* the next one to be filled */
    int64_t keys_pending; /* as put wants it */
    int64_t values_pending;
    /* a record, if the next one has its size and it was taken quickly: NULL where that is not
     * known */
    const uint8_t *model;
    int32_t patience;     /* so many records of one size there have to be, before it is tried whether they are alike */
} walk;

/* Take records as long as they are what nearly all are: taken by the selection, all integers short,
 * no headers, more bytes behind them. The walk then stands at the first that is not, or that is
 * wrong, which take() finds out. `wanted` is c->wanted, a constant where that pays. */
static inline __attribute__((always_inline)) void take_quickly(columns *c, const batch_header *h, walk *w,
                                                               uint32_t wanted) {
    const bool wants_body = (wanted & (COLUMN_KEY | COLUMN_VALUE | COLUMN_HEADERS)) != 0;
    const bool append_time = (h->attributes & ATTRIBUTE_LOG_APPEND_TIME) != 0;
    const uint8_t *const end = w->rest.end;
    /* Copies, so that the compiler knows that storing bytes does not change them. */
    const int64_t base_offset = h->base_offset;
    const int64_t base_timestamp = append_time ? h->max_timestamp : h->base_timestamp;
    const int32_t last_offset_delta = h->last_offset_delta;
    int64_t *const offsets = c->offset;
    int64_t *const timestamps = c->timestamp;
    binary_column keys = c->key;
    binary_column values = c->value;
    const uint8_t *at = w->rest.p;
    int64_t row = w->row;
    int64_t keys_pending = w->keys_pending;
    int64_t values_pending = w->values_pending;
    int32_t previous = w->previous;
    int32_t left = w->left;
    int32_t patience = w->patience;
    int32_t alike = 0; /* records of one size in a row */
    int64_t size = 0;  /* that size */
    w->model = NULL;
    for (; left > 0; left--) {
        const uint8_t *p = at;
        uint32_t u;
        field key;
        field value;
        if (end - p <= QUICK_MARGIN) {
            break;
        }
        p = quick_read(p, &u);
        if (p == NULL || (u & 1U) || (int64_t)(u >> 1) >= end - p - QUICK_MARGIN) {
            break;
        }
        const uint8_t *const next = p + (u >> 1);
        alike = next - at == size ? alike + 1 : 0;
        if (alike > patience) {
            w->model = at - size;
            break;
        }
        size = next - at;
        p = quick_read(p + 1, &u); /* behind the attributes: unused */
        if (p == NULL) {
            break;
        }
        const int64_t timestamp = append_time ? base_timestamp : add_wrapping(base_timestamp, unzigzag32(u));
        p = quick_read(p, &u);
        if (p == NULL || (u & 1U) || p > next) {
            break;
        }
        const int32_t offset_delta = (int32_t)(u >> 1);
        if (offset_delta <= previous || offset_delta > last_offset_delta || timestamp == -1) {
            break;
        }
        if (wants_body) {
            if ((p = quick_field(p, next, &key)) == NULL || (p = quick_field(p, next, &value)) == NULL) {
                break;
            }
            if (wanted & COLUMN_HEADERS) {
                if (next - p != 1 || *p != 0) {
                    break;
                }
            }
            if (wanted & COLUMN_KEY) {
                put(&keys, row, &keys_pending, &key, end);
            }
            if (wanted & COLUMN_VALUE) {
                put(&values, row, &values_pending, &value, end);
            }
        }
        if (wanted & COLUMN_OFFSET) {
            offsets[row] = base_offset + offset_delta;
        }
        if (wanted & COLUMN_TIMESTAMP) {
            timestamps[row] = timestamp;
        }
        previous = offset_delta;
        at = next;
        row++;
    }
    if (wanted & COLUMN_HEADERS) {
        repeat(c->header_offsets + w->row + 1, (int32_t)c->header_count, row - w->row);
    }
    c->key = keys;
    c->value = values;
    w->rest.p = at;
    w->row = row;
    w->keys_pending = keys_pending;
    w->values_pending = values_pending;
    w->previous = previous;
    w->left = left;
}

/* The first `size` bytes of a word as it is in memory, 0 to 8. */
static inline uint64_t first_bytes(int64_t size) { return size == 0 ? 0 : UINT64_MAX >> (64 - 8 * size); }

/* Bit by bit, so that the first byte is the lowest everywhere. */
static inline uint64_t load_low(const uint8_t *p) {
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24 | (uint64_t)p[4] << 32 |
           (uint64_t)p[5] << 40 | (uint64_t)p[6] << 48 | (uint64_t)p[7] << 56;
}

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* A number as the groups of a varint, without the bits that say that more follows; and the groups
 * together. */
static inline uint32_t groups_of(uint32_t u) {
    return (u & 0x7FU) | (u << 1 & 0x7F00U) | (u << 2 & 0x7F0000U) | (u << 3 & 0x7F000000U);
}
static inline uint32_t groups_join(uint32_t v) {
    return (v & 0x7FU) | (v >> 1 & 0x3F80U) | (v >> 2 & 0x1FC000U) | (v >> 3 & 0xFE00000U);
}

static inline int64_t stamp_time(uint64_t groups, int64_t base, bool append_time) {
    return append_time ? base : add_wrapping(base, unzigzag32(groups_join((uint32_t)groups)));
}

/* Take the records behind the model as long as they are like it: the same sizes, no headers, and
 * consecutive offsets. Everything except the timestamp is compared instead of decoded, so the
 * position of a record does not depend on the content of the one before. REQUIRES has_space. */
static inline __attribute__((always_inline)) void take_alike(columns *c, const batch_header *h, walk *w,
                                                             uint32_t wanted) {
    const bool wants_body = (wanted & (COLUMN_KEY | COLUMN_VALUE | COLUMN_HEADERS)) != 0;
    const bool append_time = (h->attributes & ATTRIBUTE_LOG_APPEND_TIME) != 0;
    const uint8_t *const model = w->model;
    const uint8_t *at = w->rest.p;
    const int64_t size = at - model;
    /* The positions of the fields in the model. It was taken quickly, so no step here can fail. */
    uint32_t u;
    field key = {NULL, 0};
    field value = {NULL, 0};
    const uint8_t *p = quick_read(model, &u) + 1;
    const int64_t timestamp_at = p - model;
    const int64_t delta_at = quick_read(p, &u) - model;
    p = quick_read(model + delta_at, &u);
    const int64_t front = p - model; /* bytes before the size of the key */
    if (front > WORD) {
        w->patience = PATIENCE_MAX;
        return;
    }
    int64_t key_at = 0;
    int64_t value_at = 0;
    int64_t value_size_at = 0;
    uint64_t key_mask = 0;   /* from `front` on: the sizes of the key and, where that is not elsewhere, of the value */
    uint64_t value_mask = 0;
    if (wants_body) {
        p = quick_field(p, at, &key);
        key_at = (key.data == NULL ? p : key.data) - model;
        value_size_at = p - model;
        p = quick_field(p, at, &value);
        value_at = (value.data == NULL ? p : value.data) - model;
        key_mask = first_bytes((key.size == 0 ? value_at : key_at) - front);
        value_mask = key.size == 0 ? 0 : first_bytes(value_at - value_size_at);
    }
    const uint64_t key_same = load_low(model + front) & key_mask;
    const uint64_t value_same = load_low(model + value_size_at) & value_mask;
    const uint64_t stamp_mask = (first_bytes(delta_at) ^ first_bytes(timestamp_at)) & 0x7F7F7F7F7F7F7F7FU;
    const uint64_t mask = first_bytes(front) ^ stamp_mask;
    const uint64_t delta_more = (first_bytes(front - 1) ^ first_bytes(delta_at)) & 0x8080808080808080U;
    const uint64_t fixed = (load_low(model) & mask & first_bytes(delta_at)) | delta_more;
    const uint64_t step = (uint64_t)2 << (8 * delta_at);
    /* Behind the last one there have to be the bytes that are read and written in blocks. */
    int64_t left = smaller(w->left, (w->rest.end - at - QUICK_MARGIN) / size);
    left = smaller(left, h->last_offset_delta - (int64_t)w->previous);
    if (wanted & COLUMN_KEY) {
        left = smaller(left, (c->key.capacity - c->key.size - COPY_BLOCK) / (key.size + 1));
    }
    if (wanted & COLUMN_VALUE) {
        left = smaller(left, (c->value.capacity - c->value.size - COPY_BLOCK) / (value.size + 1));
    }
    const int64_t base_timestamp = append_time ? h->max_timestamp : h->base_timestamp;
    const int64_t first_offset = h->base_offset + w->previous + 1 - w->row;
    int64_t *const offsets = c->offset;
    int64_t *const timestamps = c->timestamp;
    int32_t *const key_ends = c->key.offsets;
    int32_t *const value_ends = c->value.offsets;
    uint8_t *const key_data = c->key.data;
    uint8_t *const value_data = c->value.data;
    int64_t key_end = c->key.size;
    int64_t value_end = c->value.size;
    int64_t row = w->row;
    int32_t delta = w->previous;
    uint64_t stamp = load_low(model) & stamp_mask;
    int64_t timestamp = stamp_time(stamp >> (8 * timestamp_at), base_timestamp, append_time);
    while (left > 0) {
        /* As long as the lowest group does not overflow, the next delta's bytes are the last one's
         * and two. */
        const uint32_t next = (uint32_t)(delta + 1) << 1;
        if (next >> (7 * (front - delta_at)) != 0) {
            break;
        }
        uint64_t same = fixed | (uint64_t)groups_of(next) << (8 * delta_at);
        const int64_t run = smaller(left, 64 - ((delta + 1) & 63));
        int64_t i = 0;
        for (; i < run; i++) {
            const uint64_t begin = load_low(at);
            uint64_t wrong = (begin & mask) ^ same;
            if (wants_body) {
                wrong |= (load_low(at + front) & key_mask) ^ key_same;
                if (value_mask != 0) {
                    wrong |= (load_low(at + value_size_at) & value_mask) ^ value_same;
                }
            }
            if (wanted & COLUMN_HEADERS) {
                wrong |= at[size - 1];
            }
            if (wrong != 0) {
                break;
            }
            if ((begin & stamp_mask) != stamp) {
                const int64_t other =
                    stamp_time((begin & stamp_mask) >> (8 * timestamp_at), base_timestamp, append_time);
                if (other == -1) {
                    break;
                }
                stamp = begin & stamp_mask;
                timestamp = other;
            }
            if ((wanted & COLUMN_KEY) && key.data != NULL) {
                copy_roomy(key_data + key_end, at + key_at, key.size);
                key_end += key.size;
                key_ends[row + 1] = (int32_t)key_end;
            }
            if ((wanted & COLUMN_VALUE) && value.data != NULL) {
                copy_roomy(value_data + value_end, at + value_at, value.size);
                value_end += value.size;
                value_ends[row + 1] = (int32_t)value_end;
            }
            if (wanted & COLUMN_TIMESTAMP) {
                timestamps[row] = timestamp;
            }
            if (wanted & COLUMN_OFFSET) {
                offsets[row] = first_offset + row;
            }
            same += step;
            at += size;
            row++;
        }
        delta += (int32_t)i;
        left -= run;
        if (i < run) {
            break;
        }
    }
    const int64_t taken = row - w->row;
    if (wanted & COLUMN_HEADERS) {
        repeat(c->header_offsets + w->row + 1, (int32_t)c->header_count, taken);
    }
    if ((wanted & COLUMN_KEY) && key.data != NULL && taken > 0) {
        c->key.size = key_end;
        w->keys_pending = row;
    }
    if ((wanted & COLUMN_VALUE) && value.data != NULL && taken > 0) {
        c->value.size = value_end;
        w->values_pending = row;
    }
    w->rest.p = at;
    w->row = row;
    w->previous = delta;
    w->left -= (int32_t)taken;
    w->patience = taken >= ALIKE_FEW ? 1 : (int32_t)smaller(2 * (int64_t)w->patience, PATIENCE_MAX);
}

/* Take the records that the quick path can take. */
static inline __attribute__((always_inline)) void take_many(columns *c, const batch_header *h, walk *w,
                                                            uint32_t wanted) {
    for (;;) {
        take_quickly(c, h, w, wanted);
        if (w->model == NULL) {
            break;
        }
        take_alike(c, h, w, wanted);
    }
}

/* Take the next record of any form. From the first field that is not wanted, the rest of the record
 * is skipped by its length. After a status the walk stands at this record. */
static int take(columns *c, const columns_selection *selection, const batch_header *h, walk *w) {
    const uint32_t wanted = c->wanted;
    const int64_t row = w->row;
    cursor body = w->rest;
    int32_t length;
    int32_t offset_delta;
    int64_t timestamp_delta;
    int status;
    if (body.p == body.end) {
        return STATUS_COUNT;
    }
    if ((status = varint_read(&body, &length)) < 0) {
        return status;
    }
    if (length < 1 || (size_t)length > cursor_left(&body)) {
        return length < 1 ? STATUS_LENGTH : STATUS_CUT;
    }
    body.end = body.p + length;
    body.p++; /* attributes: unused */
    if ((status = varlong_read(&body, &timestamp_delta)) < 0 || (status = varint_read(&body, &offset_delta)) < 0) {
        return status;
    }
    if (offset_delta <= w->previous || offset_delta > h->last_offset_delta) {
        return STATUS_ORDER;
    }
    const int64_t offset = h->base_offset + offset_delta;
    const int64_t timestamp = batch_record_timestamp(h, timestamp_delta);
    const bool taken = offset >= selection->start_offset && offset < selection->end_offset
        && (!selection->timed
            || (timestamp != -1 && timestamp >= selection->first_timestamp && timestamp <= selection->last_timestamp));
    if (taken && (wanted & (COLUMN_KEY | COLUMN_VALUE | COLUMN_HEADERS))) {
        field key;
        field value;
        if ((status = field_read(&body, &key)) < 0 || (status = field_read(&body, &value)) < 0) {
            return status;
        }
        if (wanted & COLUMN_HEADERS) {
            if (cursor_left(&body) == 1 && *body.p == 0) {
                /* No headers: nearly always. */
            } else if ((status = put_headers(c, &body, w->rest.end)) < 0) {
                return status;
            }
            c->header_offsets[row + 1] = (int32_t)c->header_count;
        }
        if (wanted & COLUMN_KEY) {
            put(&c->key, row, &w->keys_pending, &key, w->rest.end);
        }
        if (wanted & COLUMN_VALUE) {
            put(&c->value, row, &w->values_pending, &value, w->rest.end);
        }
    }
    if (taken && (wanted & COLUMN_OFFSET)) {
        c->offset[row] = offset;
    }
    if (taken && (wanted & COLUMN_TIMESTAMP)) {
        c->timestamp[row] = timestamp;
        if (timestamp == -1) {
            c->timestamp[row] = 0;
            clear_bit(c->timestamp_validity, row);
            c->timestamp_null_count++;
        }
    }
    w->rest.p = body.end;
    w->previous = offset_delta;
    w->row += taken;
    w->left--;
    return STATUS_OK;
}

/* All records. REQUIRES has_space. On a status `rest` is at the bad record, and what belongs to the
 * rows of this batch is in between. */
static int fill(columns *c, const columns_selection *selection, const batch_header *h, cursor *rest) {
    const int64_t start = c->row_count;
    const bool whole =
        h->base_offset >= selection->start_offset && batch_last_offset(h) < selection->end_offset && !selection->timed;
    walk w = {.rest = *rest,
              .left = h->record_count,
              .previous = -1,
              .row = start,
              .keys_pending = start,
              .values_pending = start,
              .patience = 1};
    int status = STATUS_OK;
    while (w.left > 0 && status == STATUS_OK) {
        const int32_t left = w.left;
        if (whole && (c->wanted & WANTED_MOST) == WANTED_MOST) {
            take_many(c, h, &w, WANTED_MOST);
        } else if (whole && c->wanted == (COLUMN_OFFSET | COLUMN_TIMESTAMP)) {
            take_many(c, h, &w, COLUMN_OFFSET | COLUMN_TIMESTAMP);
        } else if (whole) {
            take_many(c, h, &w, c->wanted);
        }
        /* The quick path failed for one record, and probably fails for the next ones too. */
        for (int32_t i = left == w.left ? SLOW_RUN : 1; i > 0 && w.left > 0 && status == STATUS_OK; i--) {
            status = take(c, selection, h, &w);
        }
    }
    if ((c->wanted & COLUMN_KEY) && w.keys_pending != w.row) {
        put_nulls(&c->key, w.keys_pending, w.row);
    }
    if ((c->wanted & COLUMN_VALUE) && w.values_pending != w.row) {
        put_nulls(&c->value, w.values_pending, w.row);
    }
    *rest = w.rest;
    c->row_count = w.row;
    if (status == STATUS_OK && rest->p != rest->end) {
        status = STATUS_TRAILING;
    }
    return status;
}

/* Columns with one value for the whole batch. */
static void fill_constant(columns *c, const columns_selection *selection, const batch_header *h, int64_t from) {
    const int64_t count = c->row_count - from;
    if (count == 0) {
        return; /* before the first row the arrays may be NULL */
    }
    if (c->wanted & COLUMN_PARTITION) {
        repeat(c->partition + from, selection->partition, count);
    }
    if (c->wanted & COLUMN_TIMESTAMP_TYPE) {
        memset(c->timestamp_type + from,
               (h->attributes & ATTRIBUTE_LOG_APPEND_TIME) ? 1
               : batch_is_timeless(h)                      ? -1
                                                           : 0,
               (size_t)count);
    }
    if (c->wanted & COLUMN_LEADER_EPOCH) {
        repeat(c->leader_epoch + from, h->leader_epoch, count);
    }
}

/* Undo a fill that failed. The bits of a row are cleared only when no step of the row can fail any
 * more. */
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

int64_t columns_append(columns *c, const columns_selection *selection, const batch_header *h, const uint8_t *p,
                       const uint8_t *end, columns_progress *progress) {
    const columns before = *c;
    cursor rest = {p, end};
    progress->position = 0;
    if (h->record_count > (end - p) / RECORD_SIZE_MIN) {
        return STATUS_ABSURD;
    }
    if (h->record_count == 0 && p < end) {
        return STATUS_TRAILING; /* no rows, so the caller would take the lack of room for one of headers */
    }
    progress->rows_needed = h->record_count;
    progress->bytes_needed = end - p;
    if (!has_space(c, progress->rows_needed, progress->bytes_needed)) {
        return STATUS_SPACE;
    }
    const int status = fill(c, selection, h, &rest);
    if (status < 0) {
        put_back(c, &before);
        if (status == STATUS_UTF8) { /* room for all header keys with replacements */
            progress->bytes_needed *= UTF8_GROWTH;
            return STATUS_SPACE;
        }
        progress->rows_needed = 0;
        progress->position = rest.p - p;
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
        if ((h.attributes & (ATTRIBUTE_CODEC | ATTRIBUTE_CONTROL)) != 0 || h.base_offset >= selection->end_offset ||
            (c->row_count > 0 && (c->row_count + h.record_count > row_limit ||
                                  columns_size(c) + h.size - BATCH_HEADER_SIZE > size_limit))) {
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

void columns_repeat(const uint8_t *text, int64_t size, int64_t count, int32_t *offsets, uint8_t *data) {
    offsets[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        memcpy(data + i * size, text, (size_t)size);
        offsets[i + 1] = (int32_t)((i + 1) * size);
    }
}

/* Record batches (format v2) to Arrow columns: each record's fields are copied into arrays that the
 * caller sized.
 *
 * Nothing is allocated, no byte outside [p, end) is read, none outside the stated capacities is
 * written. A batch is added whole (all of its selected records) or not at all: after a negative
 * status the columns have not changed. U+FFFD replaces bytes of a header key that are not UTF-8. */
#ifndef REPLOG_COLUMNS_H
#define REPLOG_COLUMNS_H

#include "batch.h"

/* Bits of `columns.wanted`, in the order of a schema. */
enum {
    COLUMN_PARTITION = 1 << 0,
    COLUMN_OFFSET = 1 << 1,
    COLUMN_TIMESTAMP = 1 << 2,
    COLUMN_TIMESTAMP_TYPE = 1 << 3,
    COLUMN_KEY = 1 << 4,
    COLUMN_VALUE = 1 << 5,
    COLUMN_HEADERS = 1 << 6,
    COLUMN_LEADER_EPOCH = 1 << 7
};

/* One variable-size column in Arrow's layout. All bits of `validity` behind the last row are 1. */
typedef struct {
    int32_t *offsets;   /* one more than rows; [0] is 0 */
    uint8_t *validity;  /* one bit per row, least significant first */
    uint8_t *data;
    int64_t size;       /* bytes of data in use */
    int64_t capacity;   /* bytes of data, at most INT32_MAX */
    int64_t null_count;
} binary_column;

/* Columns under construction. Arrays of columns that are not wanted may be NULL. */
typedef struct {
    uint32_t wanted;
    int64_t row_count;
    int64_t row_capacity;
    int32_t *partition;
    int64_t *offset;
    int64_t *timestamp;
    uint8_t *timestamp_validity;  /* as binary_column.validity */
    int64_t timestamp_null_count;
    int8_t *timestamp_type;
    int32_t *leader_epoch;
    binary_column key;
    binary_column value;
    int32_t *header_offsets;      /* one more than rows; [0] is 0 */
    int64_t header_count;
    int64_t header_capacity;      /* rows of the two below */
    binary_column header_key;     /* without validity: a header's key is never null */
    binary_column header_value;
} columns;

/* Which records are taken. */
typedef struct {
    int64_t start_offset;
    int64_t end_offset;       /* not taken itself */
    int64_t first_timestamp;
    int64_t last_timestamp;   /* taken itself, so that every int64 can be asked for */
    bool timed;               /* false: timestamps do not matter. true: a record without one (-1) is not taken */
    int32_t partition;        /* the value of the column */
} columns_selection;

/* What stopped columns_extend, beside a status. */
typedef struct {
    /* the first byte that was not taken: of a batch, or, with a status, of the wrong structure
     * in it */
    int64_t position;
    int64_t next_offset;  /* behind the last batch taken; as it was when there was none */
    /* with STATUS_SPACE: rows, and bytes of each variable-size column, that the next batch may
     * need */
    int64_t rows_needed;
    int64_t bytes_needed;
} columns_progress;

/* Bytes of a block for all data of the wanted columns that have one entry for each row (bits and
 * offsets too), for `capacity` rows: a multiple of 64. */
int64_t columns_rows_size(const columns *c, int64_t capacity);

/* Move the rows into such a block, which is not the one they are in, and set up the rest of it.
 * REQUIRES capacity >= c->row_count. */
void columns_move(columns *c, uint8_t *rows, int64_t capacity);

/* Add one batch with header `h` and (uncompressed) records [p, end). Returns rows added, or a
 * status with the bad record's `progress->position` in bytes from p. STATUS_SPACE: capacities are
 * below rows_needed and bytes_needed, or (rows_needed being 0) header_capacity is too small: grow
 * and call again. */
int64_t columns_append(columns *c, const columns_selection *selection, const batch_header *h, const uint8_t *p,
                       const uint8_t *end, columns_progress *progress);

/* Add the whole batches of [p, end) in turn, and check their CRC if `check_crc`. Stop at a batch
 * that is compressed, is a control batch, is incomplete, begins at or behind
 * selection->end_offset, or might bring the total above row_limit rows or size_limit bytes of
 * variable-size data (but the first batch is always added, and no batch is divided). Returns
 * STATUS_OK with `progress`, or a status as columns_append; the batches before the bad one stay
 * added. */
int columns_extend(columns *c, const columns_selection *selection, const uint8_t *p, const uint8_t *end, bool check_crc,
                   int64_t row_limit, int64_t size_limit, columns_progress *progress);

/* Bytes of variable-size data so far. */
static inline int64_t columns_size(const columns *c) {
    return c->key.size + c->value.size + c->header_key.size + c->header_value.size;
}

/* Write `count` times the same text, of `size` bytes, to `data`, and their count + 1 offsets.
 * REQUIRES size * count <= INT32_MAX. */
void columns_repeat(const uint8_t *text, int64_t size, int64_t count, int32_t *offsets, uint8_t *data);

#endif

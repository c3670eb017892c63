/* A table of keys, values, headers and timestamps in Arrow's arrays to record batches: the way back
 * of columns.h.
 *
 * Arrays are borrowed. table_check finds every fault that can be seen. Arrow's C data interface has
 * no sizes of buffers except those of views, so buffers must be as large as their last offset says.
 * Kernels allocate nothing: records go into memory that the caller sized, and a row that does not
 * fit leaves it unchanged. */
#ifndef REPLOG_TABLE_H
#define REPLOG_TABLE_H

#include <stdbool.h>

#include "batch.h"

/* How a column of bytes lies in memory. */
enum table_layout {
    TABLE_NONE = 0,   /* no such column: every row is null */
    TABLE_SMALL = 1,  /* int32 offsets */
    TABLE_LARGE = 2,  /* int64 offsets */
    TABLE_VIEW = 3,   /* 16 bytes each: the size, then the bytes, or their first 4, buffer and offset */
    TABLE_FIXED = 4   /* `width` bytes each */
};

/* One column of bytes, or of lists of headers. `places` are the offsets or views. Lists know the
 * layouts but for these differences: of views `places` are offsets and `buffer_sizes` sizes, both
 * int32 or int64 as `width` says in bytes; of fixed ones `width` counts items. */
typedef struct {
    const uint8_t *validity;        /* NULL: nothing is null */
    const void *places;
    const uint8_t *data;
    int64_t data_size;              /* where the last of the offsets ends */
    const uint8_t *const *buffers;  /* of views: buffer i is buffers[i], of `buffer_count` */
    const void *buffer_sizes;       /* theirs, int64 each */
    int64_t buffer_count;
    int64_t first;                  /* where the first row is */
    int32_t width;
    int32_t layout;
} table_bytes;

/* Milliseconds since 1970, once each value was multiplied or divided. `values` NULL: no such
 * column. */
typedef struct {
    const uint8_t *validity;
    const void *values;             /* int64 */
    int64_t first;
    int64_t multiplier;
    int64_t divisor;
    bool is_null;                   /* every row is, in a column of nothing else */
    /* whole numbers: -1 means no time; in a timestamp column -1 ms is a time before 1970 */
    bool is_number;
} table_time;

/* Some rows of the table. The offsets of `headers` count the `header_count` headers; only the
 * validity of `header` is used. */
typedef struct {
    table_bytes key;
    table_bytes value;
    table_time timestamp;
    table_bytes headers;
    table_bytes header;
    table_bytes header_key;
    table_bytes header_value;
    int64_t header_count;
} table_rows;

/* A batch being gathered: room for its header, then records. */
typedef struct {
    uint8_t *p;
    int64_t capacity;
    int64_t target;           /* with a record in it, it grows up to here only */
    int64_t used;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int32_t record_count;
} table_batch;

/* Check rows [0, count). Returns the first row that does not fit a batch of its own of `size_max`
 * bytes, or count. Returns a status, and the row in `*row`, for a header without a key
 * (STATUS_HEADER_KEY) or with a key that is not UTF-8 (STATUS_UTF8), for a time outside the range
 * of records (STATUS_RANGE: before 1970, except the number -1 for none, or above TIMESTAMP_MAX),
 * and for invalid offsets (STATUS_LENGTH). */
int64_t table_check(const table_rows *t, int64_t count, int64_t size_max, int64_t *row);

/* Whether no row of [0, count) has a header. Only `headers` is looked at. */
bool table_headers_empty(const table_rows *t, int64_t count);

/* The time of a row in ms; -1 if it is null, `otherwise` if the table has no such column. */
int64_t table_time_at(const table_rows *t, int64_t row, int64_t otherwise);

/* Add rows [start, count) until one does not fit; the first that was not taken. `timestamp` (ms) is
 * theirs where the table has no such column; a null is none (-1). REQUIRES that table_check found
 * nothing. */
int64_t table_encode(const table_rows *t, int64_t start, int64_t count, int64_t timestamp, table_batch *b);

#endif

/* Rows in Arrow's arrays to record batches: the way back of columns.h.
 *
 * Arrays are borrowed. Offsets that go backwards, or behind the last one, are seen; that the
 * buffers are as large as that says has to be believed, because Arrow's C data interface does not
 * tell. Nothing is allocated; records go into memory that the caller sized, and a row that does not
 * fit leaves it as it was. */
#ifndef REPLOG_ROWS_H
#define REPLOG_ROWS_H

#include "batch.h"

/* One variable-size column. `offsets` NULL: there is no such column, every row is null. */
typedef struct {
    const uint8_t *validity;  /* NULL: nothing is null */
    const void *offsets;      /* int32 */
    const uint8_t *data;
    int32_t data_size;        /* where the last of the offsets ends */
    int64_t first;            /* where the first row is, in all three */
} rows_binary;

/* One fixed-size column. `values` NULL: there is no such column, every row is null. */
typedef struct {
    const uint8_t *validity;
    const void *values;
    int64_t first;
} rows_fixed;

typedef struct {
    rows_binary key;
    rows_binary value;
    rows_fixed timestamp;     /* int64, microseconds since 1970 */
    rows_fixed partition;     /* int32 */
    rows_binary headers;      /* a list: its offsets count headers, `data` is not used */
    rows_fixed header;        /* whether a header itself is null: only its validity is used */
    rows_binary header_key;
    rows_binary header_value;
    int64_t header_count;     /* the offsets of `headers` stay within it */
} rows;

/* A batch being gathered: room for its header, then records. */
typedef struct {
    uint8_t *p;
    int64_t capacity;
    int64_t target;           /* with a record in it, it grows up to here only */
    int64_t used;
    int64_t base_timestamp;   /* ms */
    int64_t max_timestamp;
    uint64_t seed;            /* of the hashes that `sum` adds up */
    /* over all rows that were added: XXH64 of a record's bytes from the key on; see rows_append */
    uint64_t sum;
    int32_t record_count;
} rows_batch;

/* Kafka's 32-bit hash of a key (org.apache.kafka.common.utils.Utils.murmur2). */
uint32_t murmur2(const uint8_t *p, size_t size);

/* The partition of each of `count` rows into `out`: what its column says; where that is null, where
 * murmur2 puts its key; without a key, `keyless`. Returns count, or the first row whose column
 * names a partition outside [0, partition_count). */
int64_t rows_place(const rows *r, int64_t count, int32_t partition_count, int32_t keyless, int32_t *out);

/* Sort the rows by partition, rows of one partition in their order: row numbers into `order`, and
 * where the rows of partition i begin into starts[i] (partition_count + 1 of them). */
void rows_group(const int32_t *partitions, int64_t count, int32_t partition_count, int64_t *starts, int32_t *order);

/* Add rows order[start:end] to `b` until one does not fit. Returns the index of the first row that
 * was not taken, and in `*needed` the capacity that it needs. `timestamp` (ms) is the time of rows
 * without one. Returns a status for a header without a key (STATUS_HEADER_KEY) or with a key that
 * is not UTF-8 (STATUS_UTF8), for sums beyond int32 (STATUS_ABSURD), for a time outside the range
 * of records (before 1970 or above TIMESTAMP_MAX: STATUS_RANGE) and for invalid offsets
 * (STATUS_LENGTH); `*needed` is then the row.
 *
 * `b->sum` grows by the XXH64 of each row's key, value and headers as encoded, with `b->seed` as
 * seed; if the row names its partition, by that of `b->seed` + partition + 1. The sum wraps, so it
 * depends neither on the order of the rows nor on their batches. */
int64_t rows_append(const rows *r, const int32_t *order, int64_t start, int64_t end, int64_t timestamp, rows_batch *b,
                    int64_t *needed);

#endif

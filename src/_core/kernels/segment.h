/* Walking the batches of a byte range by their headers, and the scan that rebuilds a segment's
 * indexes and other files. */
#ifndef REPLOG_SEGMENT_H
#define REPLOG_SEGMENT_H

#include "batch.h"

/* -- the scan of one segment -- */

/* The position of a scan: everything below `position` was accepted. */
typedef struct {
    int64_t base_offset;          /* of the segment */
    int64_t position;             /* first byte not taken */
    int64_t next_offset;          /* lowest base offset that the next batch may have */
    int64_t max_timestamp;        /* greatest so far, -1 at the start ... */
    int64_t max_timestamp_offset; /* ... and the last offset of the earliest batch that has it */
    int64_t batch_count;
    int64_t bytes_since_entry;    /* taken since the batch of the last index entry began */
    int64_t index_interval;
    int64_t last_time_entry;      /* timestamp of the last time entry, -1 before the first */
    int64_t first_producer;       /* position of the first batch that bears a producer id, -1 while there is none */
    int32_t last_epoch;           /* -1 at the start */
    bool check_crc;
    /* only messages of magic 0 and 1 so far (whose CRC is checked in any case), or nothing */
    bool legacy;
} segment_scan;

/* What one batch added to the segment's other files. */
typedef struct {
    batch_header header;
    bool epoch_rises;  /* the batch begins header.leader_epoch */
    bool has_entry;    /* (last offset, start of the batch) belongs into the offset index */
    bool has_time;     /* and (max_timestamp, max_timestamp_offset) of the scan into the time index */
} segment_step;

void segment_scan_begin(segment_scan *scan, int64_t base_offset, int64_t position, int64_t next_offset,
                        int64_t index_interval, bool check_crc);

/* Take the batch at p, which is the byte at scan->position. Returns 1; 0 when it is not all in [p,
 * end); or a status. The scan changes only when it returns 1. */
int segment_scan_step(segment_scan *scan, const uint8_t *p, const uint8_t *end, segment_step *step);

/* -- searches by header -- */

/* First batch of [p, end) whose last offset is at least `offset`: its position, and its size in
 * `*size`. Its body may be cut. -1 when there is none: then `*size` is where to go on, which may
 * lie behind `end` when the last batch is cut. A status other than that of a cut is returned as it
 * is, with the bad batch's position in `*size`; so positions are >= 0, "none" is SEGMENT_NONE, and
 * statuses are below it. */
enum { SEGMENT_NONE = -1 };
int64_t segment_find_offset(const uint8_t *p, const uint8_t *end, int64_t offset, int64_t *size);

/* The same for the first batch whose max timestamp is at least `timestamp`. */
int64_t segment_find_timestamp(const uint8_t *p, const uint8_t *end, int64_t timestamp, int64_t *size);

/* Find the first whole batch of [p, end) with a producer id (and, with `transactional`, in a
 * transaction). Returns its position, and its size in `*size`; SEGMENT_NONE if there is none, with
 * the end of the whole batches in `*size`. A bad header ends the walk, as a cut one does; it is a
 * status only if it is the first. */
int64_t segment_find_producer(const uint8_t *p, const uint8_t *end, bool transactional, int64_t *size);

/* Bytes of the leading whole batches that end below end_offset (exclusive): at most size_max, but
 * at least one batch, if the first is whole. A bad header ends the walk; it is a status only if the
 * first batch has it. */
int64_t segment_whole_batches(const uint8_t *p, const uint8_t *end, int64_t end_offset, int64_t size_max);

#endif

/* Record batches, format v2 (docs/internals/format/record_batch.md): header, records, headers; read
 * and write.
 *
  * Readers accept foreign bytes and never read outside [p, end). Their results point into those
 * bytes. */
#ifndef REPLOG_BATCH_H
#define REPLOG_BATCH_H

/* The last millisecond of the year 9999: TIMESTAMP_MAX of pyreplog/timestamps.py has the reason. */
#define TIMESTAMP_MAX INT64_C(253402300799999)

#include <stdbool.h>

#include "bytes.h"
#include "varint.h"

enum {
    BATCH_LOG_OVERHEAD = 12,      /* base offset and length, which the length field does not count */
    BATCH_PREFIX_SIZE = 17,       /* up to and with the magic: the same in all formats */
    BATCH_CRC_POSITION = 17,
    BATCH_CRC_START = 21,         /* the CRC covers the bytes from here to the end */
    BATCH_HEADER_SIZE = 61,
    BATCH_LENGTH_MIN_ANY = 14,    /* smallest legal length field of any format */
    BATCH_MAGIC = 2
};

enum {
    ATTRIBUTE_CODEC = 0x07,
    ATTRIBUTE_LOG_APPEND_TIME = 0x08,
    ATTRIBUTE_TRANSACTIONAL = 0x10,
    ATTRIBUTE_CONTROL = 0x20,
    ATTRIBUTE_DELETE_HORIZON = 0x40,
    ATTRIBUTE_TIMELESS = 0x4000  /* never on a disk: see batch_is_timeless */
};

/* The 61 bytes, in host order. */
typedef struct {
    int64_t base_offset;
    int64_t base_timestamp;  /* the delete horizon where ATTRIBUTE_DELETE_HORIZON is set */
    int64_t max_timestamp;
    int64_t producer_id;
    int32_t size;            /* of the whole batch, header included */
    int32_t leader_epoch;
    int32_t last_offset_delta;
    int32_t base_sequence;
    int32_t record_count;
    uint32_t crc;
    int16_t attributes;
    int16_t producer_epoch;
} batch_header;

/* One record. Pointers are borrowed from the payload; NULL with size -1 means null. */
typedef struct {
    int64_t timestamp_delta;
    const uint8_t *key;
    const uint8_t *value;
    const uint8_t *headers;  /* `header_count` headers in `headers_size` bytes, already checked: see header_read */
    int32_t offset_delta;
    int32_t key_size;
    int32_t value_size;
    int32_t header_count;
    int32_t headers_size;
    int32_t delivery_count;  /* by a queue; the kernels leave it as it is */
} batch_record;

/* One header of a record. The key is never NULL and not checked to be UTF-8; value as in
 * batch_record. */
typedef struct {
    const uint8_t *key;
    const uint8_t *value;
    int32_t key_size;
    int32_t value_size;
} record_header;

static inline int64_t batch_last_offset(const batch_header *h) { return h->base_offset + h->last_offset_delta; }

/* Whether the batch was made in memory of messages of magic 0, which have no timestamp at all. */
static inline bool batch_is_timeless(const batch_header *h) {
    return (h->attributes & ATTRIBUTE_TIMELESS) != 0 && h->leader_epoch == -1 && h->max_timestamp == -1;
}

/* Timestamp of a record as readers see it. */
static inline int64_t batch_record_timestamp(const batch_header *h, int64_t timestamp_delta) {
    return (h->attributes & ATTRIBUTE_LOG_APPEND_TIME) ? h->max_timestamp
                                                       : add_wrapping(h->base_timestamp, timestamp_delta);
}

/* -- reading -- */

/* Parse the header at p. The body may be cut: [p, end) needs 61 bytes only. STATUS_CUT (fewer),
 * STATUS_MAGIC, STATUS_LENGTH, STATUS_ABSURD (negative count), STATUS_ORDER (offsets negative or
 * past int64). */
int batch_header_read(const uint8_t *p, const uint8_t *end, batch_header *out);

/* As batch_header_read, and the whole batch must lie in [p, end): STATUS_CUT otherwise. */
int batch_read(const uint8_t *p, const uint8_t *end, batch_header *out);

/* Bytes of the batch at p by its length field (of any format), or 0 where that is not there yet;
 * STATUS_LENGTH when it is absurd. */
int64_t batch_size_at(const uint8_t *p, const uint8_t *end);

/* CRC-32C of a whole batch of `size` >= 61 bytes at p; STATUS_CRC unless it is the stored one. */
int batch_check_crc(const uint8_t *p, size_t size);

/* Read the record at the cursor, and validate the whole of it, headers too. Kafka does not check
 * that header keys are UTF-8. On an error the cursor stays at the record's first byte. */
int record_read(cursor *c, batch_record *out);

/* Read one header. REQUIRES the bytes of a record's headers for it never to fail; safe on any
 * bytes. */
int header_read(cursor *c, record_header *out);

/* Walk the uncompressed records [p, end) of a batch: exactly record_count, well formed, offset
 * deltas rising within [0, last_offset_delta], nothing behind. `*position` is where the bad record
 * starts, in bytes from p. Returns 1 when the deltas are 0, 1, 2, ... and the last one is
  * last_offset_delta, 0 when they have gaps, or a status. Without an error, `*max_timestamp` is the
 * greatest timestamp as readers see it, -1 if no record has one. */
int batch_check_records(const batch_header *h, const uint8_t *p, const uint8_t *end, int64_t *position,
                        int64_t *max_timestamp);

/* The position of a walk over the records of a batch whose bytes come in parts. */
typedef struct {
    int64_t size;      /* bytes of the whole records in this part */
    int32_t count;     /* of them */
    int32_t left;      /* records of the batch that come behind them */
    int32_t previous;  /* offset delta of the last record so far; -1 before the first */
} batch_part;

/* Walk the records that lie whole in [p, end), checked as batch_check_records does; `left` and
 * `previous` say where the walk is, and move. `last`: nothing comes behind `end`. Returns
 * STATUS_OK, or a status with the bad record's `*position`. */
int batch_check_part(const batch_header *h, const uint8_t *p, const uint8_t *end, bool last, batch_part *part,
                     int64_t *position);

/* Find the first record at or after start_offset with a timestamp of at least `timestamp`. Returns
 * 1 with its offset and timestamp, 0 when there is none, or a status with the bad record's
 * `*position`. Of the records that are older only lengths and timestamps are looked at. */
int batch_find_timestamp(const batch_header *h, const uint8_t *p, const uint8_t *end, int64_t timestamp,
                         int64_t start_offset, int64_t *offset, int64_t *found, int64_t *position);

/* -- writing -- */

/* Bytes that a record takes: its length varint and its body. `headers_size` counts the encoded
 * headers without their count. Sizes of -1 are null. Sums of int32 sizes stay far below 2^63. */
int64_t record_size(int64_t timestamp_delta, int32_t offset_delta, int64_t key_size, int64_t value_size,
                    int32_t header_count, int64_t headers_size);

/* Write a record up to its headers, which the caller then appends with header_write. Returns the
 * byte behind, or NULL, with nothing written, when the whole record would not fit in [p, end). */
uint8_t *record_write(uint8_t *p, const uint8_t *end, int64_t timestamp_delta, int32_t offset_delta, const uint8_t *key,
                      int64_t key_size, const uint8_t *value, int64_t value_size, int32_t header_count,
                      int64_t headers_size);

/* The same for the most frequent record, which has a value only. Inline, because a builder calls it
 * for every record of a list. REQUIRES 0 <= value_size <= INT32_MAX. */
static inline uint8_t *record_write_value(uint8_t *p, const uint8_t *end, int64_t timestamp_delta, int32_t offset_delta,
                                          const uint8_t *value, int64_t value_size) {
    const int64_t left = end - p;
    if (value_size > left) {
        return NULL;
    }
    /* attributes, a null key and no headers take one byte each */
    const size_t body = 3 + varlong_size(timestamp_delta) + varint_size(offset_delta) +
                        varint_size((int32_t)value_size) + (size_t)value_size;
    if (body + uvarint_size((uint64_t)body << 1) > (size_t)left || body > INT32_MAX) {
        return NULL;
    }
    p = varint_write(p, (int32_t)body);
    *p++ = 0x00; /* attributes */
    p = varlong_write(p, timestamp_delta);
    p = varint_write(p, offset_delta);
    *p++ = 0x01; /* key: -1 */
    p = varint_write(p, (int32_t)value_size);
    if (value_size > 0) {
        memcpy(p, value, (size_t)value_size);
    }
    p += value_size;
    *p++ = 0x00; /* headers: 0 */
    return p;
}

/* The bytes around the values of records with one size of value and one timestamp: written once,
 * then copied. */
typedef struct {
    int64_t timestamp_delta;
    int64_t value_size;      /* of the last value */
    /* a record of this frame takes less, whatever is copied too much; INT64_MAX: the frame is
     * not made yet */
    int64_t room;
    int32_t offset_end;      /* offset deltas below have varints as long as the last one */
    uint8_t before_size;     /* length, attributes, timestamp delta: at most 5 + 1 + 10 bytes */
    uint8_t after_size;      /* the null key, and the value's length: at most 1 + 5 */
    uint8_t before[16];
    uint8_t after[8];
} record_frame;

static inline record_frame record_frame_of(int64_t timestamp_delta) {
    return (record_frame){.timestamp_delta = timestamp_delta, .value_size = -1, .room = INT64_MAX};
}

/* record_write_value into memory up to `end`; it may write to all of that memory. `offset_delta`
 * never falls from call to call. REQUIRES 0 <= value_size <= INT32_MAX. */
static inline uint8_t *record_write_framed(record_frame *f, uint8_t *p, const uint8_t *end, int32_t offset_delta,
                                           const uint8_t *value, int64_t value_size) {
    if (value_size != f->value_size || offset_delta >= f->offset_end || end - p < f->room) {
        uint8_t *const behind = record_write_value(p, end, f->timestamp_delta, offset_delta, value, value_size);
        f->room = INT64_MAX;
        if (behind != NULL && value_size == f->value_size) { /* the second one alike: there will be more */
            const size_t offset_size = varint_size(offset_delta);
            const size_t body = 3 + varlong_size(f->timestamp_delta) + offset_size + varint_size((int32_t)value_size) +
                                (size_t)value_size;
            uint8_t *q = varint_write(f->before, (int32_t)body);
            *q++ = 0x00; /* attributes */
            f->before_size = (uint8_t)(varlong_write(q, f->timestamp_delta) - f->before);
            f->after[0] = 0x01; /* key: -1 */
            f->after_size = (uint8_t)(varint_write(f->after + 1, (int32_t)value_size) - f->after);
            f->offset_end = offset_size < VARINT_SIZE_MAX ? 1 << (7 * offset_size - 1) : INT32_MAX;
            f->room = (int64_t)sizeof f->before + VARINT_SIZE_MAX + (int64_t)sizeof f->after + value_size + 1;
        }
        f->value_size = value_size;
        return behind;
    }
    memcpy(p, f->before, sizeof f->before);
    p = varint_write(p + f->before_size, offset_delta);
    memcpy(p, f->after, sizeof f->after);
    p += f->after_size;
    if (value_size > 0) {
        memcpy(p, value, (size_t)value_size);
    }
    p += value_size;
    *p++ = 0x00; /* headers: 0 */
    return p;
}

int64_t header_size(int64_t key_size, int64_t value_size);

/* Write a header; the byte behind, or NULL when it does not fit. */
uint8_t *header_write(uint8_t *p, const uint8_t *end, const uint8_t *key, int64_t key_size, const uint8_t *value,
                      int64_t value_size);

/* Write the header of the whole batch of h->size bytes at p, whose records are there already, and
 * its CRC (which is put into h). */
void batch_header_write(uint8_t *p, batch_header *h);

/* Set the fields that the CRC does not cover. REQUIRES 61 bytes. */
static inline void batch_stamp(uint8_t *p, int64_t base_offset, int32_t leader_epoch) {
    store_i64(p, base_offset);
    store_i32(p + 12, leader_epoch);
}

#endif

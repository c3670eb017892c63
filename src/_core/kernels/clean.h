/* Compaction: the newest offset of each key, and the batches without the records that a newer one
 * of their key replaces. The rules are those of Kafka's Cleaner and MemoryRecords.filterTo. */
#ifndef REPLOG_CLEAN_H
#define REPLOG_CLEAN_H

#include "batch.h"
#include "siphash.h"

/* A key's hash and one past its newest offset; end 0: empty. */
typedef struct {
    hash128 hash;
    int64_t end;
} keymap_slot;

/* An open-addressed table. The memory of the slots is the caller's, all zeros at the beginning. */
typedef struct {
    keymap_slot *slots;
    uint64_t slot_count;
    uint64_t used;
    uint64_t used_max;
    uint64_t secret[2];
} keymap;

/* Why a walk over batches ended. */
enum {
    CLEAN_WHOLE = 0,   /* at the end of the bytes, or before a batch that is not all there */
    CLEAN_OTHER = 1,   /* before a batch that the caller must handle */
    CLEAN_FULL = 2,    /* the table is full: within the batch at the position */
    CLEAN_ROOM = 3,    /* the output has no room for the batch at the position */
    CLEAN_GAP = 4      /* the batch at the position does not begin where it must */
};

/* Recorded gaps: pairs of a start and an end offset, rising. */
typedef struct {
    const int64_t *pairs;
    int64_t count;
    int64_t slot;          /* the first pair that was not passed yet */
} clean_gaps;

/* A walk over the batches of one segment. */
typedef struct {
    int64_t position;      /* bytes of the batches that are done */
    int64_t next_offset;   /* the end of the last batch */
    int32_t leader_epoch;  /* of the last batch; -1 before the first */
    bool dense;            /* the next batch begins there, or at the end of a recorded gap */
    clean_gaps gaps;
} clean_walk;

/* Whether `map` could take a key; -1 if the key has no entry, else its newest offset. */
int64_t keymap_find(const keymap *map, const uint8_t *key, int32_t size);

/* Note the keys of the uncompressed records [p, end) at or above start_offset. `*last_offset` is
 * the offset of the last record that was noted, and is not changed if none was. Returns
 * CLEAN_WHOLE, CLEAN_FULL, or a status with the bad record's `*position`. */
int keymap_note_records(keymap *map, const batch_header *h, const uint8_t *p, const uint8_t *end, int64_t start_offset,
                        int64_t *last_offset, int64_t *position);

/* Note the keys of the plain batches in [p, end): uncompressed, no transaction, no control batch.
 * `*latest` is the last offset up to which all records were noted. Returns why it ended, or a
 * status. */
int keymap_note_batches(keymap *map, clean_walk *walk, const uint8_t *p, const uint8_t *end, int64_t start_offset,
                        int64_t *latest);

typedef struct {
    const keymap *map;
    int64_t map_end;       /* records from here on are not in the map, and stay */
    int64_t round_end;     /* a batch that ends here stays, even if it is empty */
    int64_t now_ms;
    int64_t droppable_end; /* no tombstone from here on is dropped */
    bool drop_unkeyed;
} clean_rules;

/* The judgement of the records of one batch. */
typedef struct {
    int64_t first_timestamp;   /* of the first kept record */
    int64_t max_timestamp;     /* of the kept records; -1 without one */
    int64_t dropped_tombstone; /* the highest offset of a tombstone that its age removed; -1: none */
    int32_t kept;
    int32_t kept_tombstones;
    int32_t unkeyed;           /* records without a key that were dropped */
} clean_verdict;

/* Judge the uncompressed records [p, end), and set a bit for each one that stays. `bits` has room
 * for h->record_count bits. Returns STATUS_OK, or a status with the bad record's `*position`. */
int clean_judge(const clean_rules *rules, const batch_header *h, const uint8_t *p, const uint8_t *end, uint8_t *bits,
                clean_verdict *out, int64_t *position);

/* Write the records whose bit is set, with timestamps relative to `base_timestamp`. REQUIRES that
 * clean_judge accepted the records. Returns the byte behind, or NULL if the output is too small. */
uint8_t *clean_write(const batch_header *h, const uint8_t *p, const uint8_t *end, const uint8_t *bits,
                     int64_t base_timestamp, uint8_t *out, const uint8_t *out_end);

/* Counts of what the walk did. */
typedef struct {
    int64_t records_read;
    int64_t records_kept;
    int64_t unkeyed;
    int64_t dropped_tombstone; /* as in clean_verdict, of all batches */
} clean_counts;

/* Clean the plain batches in [p, end) that need no delete horizon, and write the rest of them to
 * [out, out_end). `*written` is the number of bytes there. Returns why it ended, or a status. */
int clean_batches(const clean_rules *rules, clean_walk *walk, const uint8_t *p, const uint8_t *end, uint8_t *bits,
                  uint8_t *out, const uint8_t *out_end, int64_t *written, clean_counts *counts);

/* Find the gaps between the batches in [p, end), whole batches, the first of which should begin at
 * `*next_offset`; that moves to the end of the last. Writes up to `max` pairs. Returns their
 * number, or a status. */
int64_t clean_find_gaps(const uint8_t *p, const uint8_t *end, int64_t *next_offset, int64_t *pairs, int64_t max,
                        int64_t *position);

#endif

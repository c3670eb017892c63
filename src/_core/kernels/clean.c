#include "clean.h"

#include "crc32c.h"

/* The high half of a hash times the number of slots, divided by 2^64. */
static uint64_t keymap_home(const keymap *map, hash128 hash) {
    const uint64_t high = hash.high >> 32;
    const uint64_t low = hash.high & UINT32_MAX;
    const uint64_t many_high = map->slot_count >> 32;
    const uint64_t many_low = map->slot_count & UINT32_MAX;
    const uint64_t middle = high * many_low + ((low * many_low) >> 32);
    const uint64_t cross = low * many_high + (middle & UINT32_MAX);
    return high * many_high + (middle >> 32) + (cross >> 32);
}

static keymap_slot *keymap_seek(const keymap *map, hash128 hash) {
    uint64_t slot = keymap_home(map, hash);
    for (;;) {
        keymap_slot *s = &map->slots[slot];
        if (s->end == 0 || (s->hash.low == hash.low && s->hash.high == hash.high)) {
            return s;
        }
        slot = slot + 1 == map->slot_count ? 0 : slot + 1;
    }
}

int64_t keymap_find(const keymap *map, const uint8_t *key, int32_t size) {
    return keymap_seek(map, siphash128(key, (size_t)size, map->secret))->end - 1;
}

/* Reads the keys of the records ahead of a walk, so that the processor has their slots in its cache
 * when the walk comes to them: a slot is nowhere near the last one. It decides nothing: it checks
 * only that it stays within the bytes, and stops at whatever it does not understand. */
enum { SCOUT_KEYS = 16 };

typedef struct {
    const keymap *map;
    cursor records;            /* of the present batch */
    int32_t left;              /* of its records */
    const uint8_t *batch;      /* the next batch; NULL: there is none */
    const uint8_t *end;
    unsigned head, tail;       /* of the ring */
    struct {
        const uint8_t *key;
        hash128 hash;
    } ring[SCOUT_KEYS];
} key_scout;

static void scout_fill(key_scout *s) {
    batch_record r;
    batch_header h;
    while (s->tail - s->head < SCOUT_KEYS) {
        if (s->left == 0) {
            if (s->batch == NULL || s->end - s->batch < BATCH_HEADER_SIZE ||
                s->batch[BATCH_PREFIX_SIZE - 1] != BATCH_MAGIC || batch_read(s->batch, s->end, &h) < 0 ||
                (h.attributes & (ATTRIBUTE_CODEC | ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL)) != 0) {
                return;
            }
            s->records = (cursor){s->batch + BATCH_HEADER_SIZE, s->batch + h.size};
            s->left = h.record_count;
            s->batch += h.size;
            continue;
        }
        if (record_read(&s->records, &r) < 0) {
            s->left = 0;
            s->batch = NULL;
            return;
        }
        s->left--;
        if (r.key_size >= 0) {
            const hash128 hash = siphash128(r.key, (size_t)r.key_size, s->map->secret);
            __builtin_prefetch(&s->map->slots[keymap_home(s->map, hash)]);
            s->ring[s->tail % SCOUT_KEYS].key = r.key;
            s->ring[s->tail % SCOUT_KEYS].hash = hash;
            s->tail++;
        }
    }
}

/* Return the hash of a key. The keys that a walk asks for lie one behind the other, and those that
 * it passes by are dropped from the ring. */
static hash128 scout_hash(key_scout *s, const uint8_t *key, int32_t size) {
    for (;;) {
        while (s->head != s->tail && s->ring[s->head % SCOUT_KEYS].key < key) {
            s->head++;
        }
        if (s->head != s->tail) {
            break;
        }
        scout_fill(s);
        if (s->head == s->tail) {
            return siphash128(key, (size_t)size, s->map->secret);
        }
    }
    if (s->ring[s->head % SCOUT_KEYS].key != key) {
        return siphash128(key, (size_t)size, s->map->secret);
    }
    const hash128 hash = s->ring[s->head++ % SCOUT_KEYS].hash;
    scout_fill(s);
    return hash;
}

/* Move the walk's next_offset to the begin of a batch. False: it cannot begin there. */
static bool clean_begins(clean_walk *walk, int64_t base_offset) {
    if (base_offset == walk->next_offset) {
        return true;
    }
    if (!walk->dense) {
        return base_offset > walk->next_offset;
    }
    clean_gaps *g = &walk->gaps;
    while (g->slot < g->count && g->pairs[2 * g->slot] < walk->next_offset) {
        g->slot++;
    }
    return g->slot < g->count && g->pairs[2 * g->slot] == walk->next_offset && g->pairs[2 * g->slot + 1] == base_offset;
}

static bool clean_is_plain(const batch_header *h) {
    return (h->attributes & (ATTRIBUTE_CODEC | ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL)) == 0;
}

/* Read and check the batch at the walk's position. Returns CLEAN_WHOLE with a header of size 0 if
 * the batch is not all there, CLEAN_OTHER for an old format, CLEAN_GAP, or a status. */
static int clean_next(clean_walk *walk, const uint8_t *p, const uint8_t *end, batch_header *h) {
    const uint8_t *const at = p + walk->position;
    h->size = 0;
    const int64_t size = batch_size_at(at, end);
    if (size < 0) {
        return (int)size;
    }
    if (size == 0 || size > end - at || end - at < BATCH_PREFIX_SIZE) {
        return CLEAN_WHOLE;
    }
    if (at[BATCH_PREFIX_SIZE - 1] != BATCH_MAGIC) {
        return CLEAN_OTHER;
    }
    int status = batch_read(at, end, h);
    if (status < 0) {
        return status;
    }
    status = batch_check_crc(at, (size_t)h->size);
    if (status < 0) {
        return status;
    }
    return clean_begins(walk, h->base_offset) ? CLEAN_WHOLE : CLEAN_GAP;
}

static void clean_pass(clean_walk *walk, const batch_header *h) {
    walk->position += h->size;
    walk->next_offset = batch_last_offset(h) + 1;
    walk->leader_epoch = h->leader_epoch;
}

static int note_records(keymap *map, key_scout *scout, const batch_header *h, const uint8_t *p, const uint8_t *end,
                        int64_t start_offset, int64_t *last_offset, int64_t *position) {
    cursor c = {p, end};
    batch_record r;
    int32_t before = -1;
    for (int32_t i = 0; i < h->record_count; i++) {
        *position = c.p - p;
        const int status = record_read(&c, &r);
        if (status < 0) {
            return status;
        }
        if (r.offset_delta <= before || r.offset_delta > h->last_offset_delta) {
            return STATUS_ORDER;
        }
        before = r.offset_delta;
        const int64_t offset = h->base_offset + r.offset_delta;
        if (r.key_size < 0 || offset < start_offset) {
            continue;
        }
        const hash128 hash = scout_hash(scout, r.key, r.key_size);
        keymap_slot *const slot = keymap_seek(map, hash);
        if (slot->end == 0) {
            if (map->used >= map->used_max) {
                return CLEAN_FULL;
            }
            map->used++;
            slot->hash = hash;
        }
        slot->end = offset + 1;
        *last_offset = offset;
    }
    *position = c.p - p;
    return c.p == end ? CLEAN_WHOLE : STATUS_TRAILING;
}

int keymap_note_records(keymap *map, const batch_header *h, const uint8_t *p, const uint8_t *end, int64_t start_offset,
                        int64_t *last_offset, int64_t *position) {
    key_scout scout = {.map = map, .records = {p, end}, .left = h->record_count};
    return note_records(map, &scout, h, p, end, start_offset, last_offset, position);
}

int keymap_note_batches(keymap *map, clean_walk *walk, const uint8_t *p, const uint8_t *end, int64_t start_offset,
                        int64_t *latest) {
    key_scout scout = {.map = map, .batch = p + walk->position, .end = end};
    batch_header h;
    for (;;) {
        int why = clean_next(walk, p, end, &h);
        if (why != CLEAN_WHOLE || h.size == 0) {
            return why;
        }
        if (!clean_is_plain(&h)) {
            return CLEAN_OTHER;
        }
        const uint8_t *const at = p + walk->position;
        int64_t bad = 0;
        if (batch_last_offset(&h) >= start_offset) {
            why = note_records(map, &scout, &h, at + BATCH_HEADER_SIZE, at + h.size, start_offset, latest, &bad);
            if (why != CLEAN_WHOLE) {
                return why;
            }
            *latest = batch_last_offset(&h);
        }
        clean_pass(walk, &h);
    }
}

static int judge(const clean_rules *rules, key_scout *scout, const batch_header *h, const uint8_t *p,
                 const uint8_t *end, uint8_t *bits, clean_verdict *out, int64_t *position) {
    const bool dated = (h->attributes & ATTRIBUTE_DELETE_HORIZON) != 0;
    const bool protects = !dated || rules->now_ms < h->base_timestamp;
    cursor c = {p, end};
    batch_record r;
    int32_t before = -1;
    *out = (clean_verdict){.first_timestamp = -1, .max_timestamp = -1, .dropped_tombstone = -1};
    for (int32_t i = 0; i < h->record_count; i++) {
        *position = c.p - p;
        const int status = record_read(&c, &r);
        if (status < 0) {
            return status;
        }
        if (r.offset_delta <= before || r.offset_delta > h->last_offset_delta) {
            return STATUS_ORDER;
        }
        before = r.offset_delta;
        const int64_t offset = h->base_offset + r.offset_delta;
        bool keep = true;
        if (offset < rules->map_end) {
            if (r.key_size < 0) {
                keep = !rules->drop_unkeyed;
                out->unkeyed += !keep;
            } else {
                keep = offset >= keymap_seek(rules->map, scout_hash(scout, r.key, r.key_size))->end - 1;
                if (keep && r.value_size < 0 && !protects && offset < rules->droppable_end) {
                    keep = false;
                    out->dropped_tombstone = offset;
                }
            }
        }
        const uint8_t bit = (uint8_t)(1U << (i & 7));
        if (keep) {
            bits[i >> 3] |= bit;
            const int64_t timestamp = batch_record_timestamp(h, r.timestamp_delta);
            if (out->kept++ == 0) {
                out->first_timestamp = timestamp;
            }
            if (timestamp > out->max_timestamp) {
                out->max_timestamp = timestamp;
            }
            out->kept_tombstones += r.value_size < 0;
        } else {
            bits[i >> 3] &= (uint8_t)~bit;
        }
    }
    *position = c.p - p;
    return c.p == end ? STATUS_OK : STATUS_TRAILING;
}

int clean_judge(const clean_rules *rules, const batch_header *h, const uint8_t *p, const uint8_t *end, uint8_t *bits,
                clean_verdict *out, int64_t *position) {
    key_scout scout = {.map = rules->map, .records = {p, end}, .left = h->record_count};
    return judge(rules, &scout, h, p, end, bits, out, position);
}

uint8_t *clean_write(const batch_header *h, const uint8_t *p, const uint8_t *end, const uint8_t *bits,
                     int64_t base_timestamp, uint8_t *out, const uint8_t *out_end) {
    cursor c = {p, end};
    batch_record r;
    const bool same = base_timestamp == h->base_timestamp; /* then a record's bytes stay as they are */
    for (int32_t i = 0; i < h->record_count; i++) {
        const uint8_t *const at = c.p;
        const bool keep = (bits[i >> 3] & (1U << (i & 7))) != 0;
        if (same || !keep) {
            int32_t length;
            if (varint_read(&c, &length) < 0 || length < 0 || cursor_take(&c, (size_t)length) == NULL) {
                return NULL; /* excluded by the caller */
            }
            if (keep) {
                if (c.p - at > out_end - out) {
                    return NULL;
                }
                memcpy(out, at, (size_t)(c.p - at));
                out += c.p - at;
            }
            continue;
        }
        if (record_read(&c, &r) < 0) {
            return NULL; /* excluded by the caller */
        }
        const int64_t delta = subtract_wrapping(batch_record_timestamp(h, r.timestamp_delta), base_timestamp);
        out = record_write(out, out_end, delta, r.offset_delta, r.key, r.key_size, r.value, r.value_size,
                           r.header_count, r.headers_size);
        if (out == NULL) {
            return NULL;
        }
        if (r.headers_size > 0) {
            memcpy(out, r.headers, (size_t)r.headers_size);
            out += r.headers_size;
        }
    }
    return out;
}

int clean_batches(const clean_rules *rules, clean_walk *walk, const uint8_t *p, const uint8_t *end, uint8_t *bits,
                  uint8_t *out, const uint8_t *out_end, int64_t *written, clean_counts *counts) {
    key_scout scout = {.map = rules->map, .batch = p + walk->position, .end = end};
    uint8_t *to = out + *written;
    batch_header h;
    for (;;) {
        const int why = clean_next(walk, p, end, &h);
        if (why != CLEAN_WHOLE || h.size == 0) {
            return why;
        }
        if (!clean_is_plain(&h)) {
            return CLEAN_OTHER;
        }
        const uint8_t *const at = p + walk->position;
        clean_verdict v;
        int64_t bad = 0;
        const int status = judge(rules, &scout, &h, at + BATCH_HEADER_SIZE, at + h.size, bits, &v, &bad);
        if (status < 0) {
            return status;
        }
        const bool dated = (h.attributes & ATTRIBUTE_DELETE_HORIZON) != 0;
        if (v.kept == 0 && (h.producer_id >= 0 || batch_last_offset(&h) + 1 == rules->round_end ||
                            h.leader_epoch != walk->leader_epoch)) {
            return CLEAN_OTHER;
        }
        if (v.kept_tombstones > 0 && !dated) {
            return CLEAN_OTHER;
        }
        if (v.kept == h.record_count && v.kept > 0) {
            if (h.size > out_end - to) {
                return CLEAN_ROOM;
            }
            memcpy(to, at, (size_t)h.size);
            to += h.size;
        } else if (v.kept > 0) {
            if (out_end - to < BATCH_HEADER_SIZE) {
                return CLEAN_ROOM;
            }
            batch_header rest = h;
            rest.record_count = v.kept;
            if (!dated) {
                rest.base_timestamp = v.first_timestamp;
            }
            if ((h.attributes & ATTRIBUTE_LOG_APPEND_TIME) == 0) {
                rest.max_timestamp = v.max_timestamp;
            }
            const uint8_t *const behind = clean_write(&h, at + BATCH_HEADER_SIZE, at + h.size, bits,
                                                      rest.base_timestamp, to + BATCH_HEADER_SIZE, out_end);
            if (behind == NULL) {
                return CLEAN_ROOM;
            }
            rest.size = (int32_t)(behind - to);
            batch_header_write(to, &rest);
            to += rest.size;
        }
        counts->records_read += h.record_count;
        counts->records_kept += v.kept;
        counts->unkeyed += v.unkeyed;
        if (v.dropped_tombstone > counts->dropped_tombstone) {
            counts->dropped_tombstone = v.dropped_tombstone;
        }
        *written = to - out;
        clean_pass(walk, &h);
    }
}

int64_t clean_find_gaps(const uint8_t *p, const uint8_t *end, int64_t *next_offset, int64_t *pairs, int64_t max,
                        int64_t *position) {
    const uint8_t *at = p;
    int64_t found = 0;
    batch_header h;
    while (at < end) {
        *position = at - p;
        const int status = batch_read(at, end, &h);
        if (status < 0) {
            return status;
        }
        if (h.base_offset < *next_offset) {
            return STATUS_ORDER;
        }
        if (h.base_offset > *next_offset) {
            if (found == max) {
                break;
            }
            pairs[2 * found] = *next_offset;
            pairs[2 * found + 1] = h.base_offset;
            found++;
        }
        *next_offset = batch_last_offset(&h) + 1;
        at += h.size;
    }
    *position = at - p;
    return found;
}

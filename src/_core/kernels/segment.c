#include "segment.h"

#include "legacy.h"

void segment_scan_begin(segment_scan *scan, int64_t base_offset, int64_t position, int64_t next_offset,
                        int64_t index_interval, bool check_crc) {
    *scan = (segment_scan){
        .base_offset = base_offset,
        .position = position,
        .next_offset = next_offset,
        .max_timestamp = -1,
        .max_timestamp_offset = base_offset,
        .index_interval = index_interval,
        .last_time_entry = -1,
        .first_producer = -1,
        .last_epoch = -1,
        .check_crc = check_crc,
        .legacy = true,
    };
}

/* Treat a message of magic 0 or 1 as a batch of its own. A compressed message does not say at which
 * offset it begins. */
static int read_legacy(const segment_scan *scan, const uint8_t *p, const uint8_t *end, batch_header *h) {
    legacy_message m;
    const int status = legacy_read(p, end, &m);
    if (status < 0) {
        const int64_t size = batch_size_at(p, end); /* rather a batch, whose magic is wrong if its length is not */
        return size < 0 ? (int)size : STATUS_MAGIC;
    }
    if (status == 0) {
        return 0;
    }
    *h = (batch_header){
        .base_offset = m.offset,
        .max_timestamp = m.timestamp,
        .producer_id = -1,
        .size = m.size,
        .leader_epoch = scan->last_epoch,
    };
    return 1;
}

int segment_scan_step(segment_scan *scan, const uint8_t *p, const uint8_t *end, segment_step *step) {
    batch_header *const h = &step->header;
    int status;
    if (scan->legacy && legacy_begins(p, end)) {
        if ((status = read_legacy(scan, p, end, h)) <= 0) {
            return status;
        }
    } else {
        status = batch_read(p, end, h);
        if (status == STATUS_CUT) {
            return 0;
        }
        if (status < 0) {
            return status;
        }
        /* First the CRC: bytes that fail it are called rotten, whatever else they say. */
        if (scan->check_crc && (status = batch_check_crc(p, (size_t)h->size)) < 0) {
            return status;
        }
        scan->legacy = false; /* no broker wrote the old formats behind this one */
    }
    if (h->base_offset < scan->next_offset) {
        return STATUS_ORDER;
    }
    /* base_offset >= next_offset >= 0, and so is the segment's, which makes the difference an
     * int64. */
    if (batch_last_offset(h) - scan->base_offset > INT32_MAX) {
        return STATUS_RANGE;
    }
    if (h->leader_epoch < scan->last_epoch) {
        return STATUS_EPOCH;
    }
    step->epoch_rises = h->leader_epoch > scan->last_epoch;
    scan->last_epoch = h->leader_epoch;
    if (h->max_timestamp > scan->max_timestamp) {
        scan->max_timestamp = h->max_timestamp;
        scan->max_timestamp_offset = batch_last_offset(h);
    }
    if (h->producer_id != -1 && scan->first_producer < 0) {
        scan->first_producer = scan->position;
    }
    step->has_entry = scan->bytes_since_entry > scan->index_interval;
    step->has_time = step->has_entry && scan->max_timestamp > scan->last_time_entry;
    if (step->has_entry) {
        scan->bytes_since_entry = 0;
    }
    if (step->has_time) {
        scan->last_time_entry = scan->max_timestamp;
    }
    scan->bytes_since_entry += h->size;
    scan->position += h->size;
    scan->next_offset = batch_last_offset(h) + 1;
    scan->batch_count++;
    return 1;
}

/* -- searches by header -- */

static inline int64_t find(const uint8_t *p, const uint8_t *end, int64_t least, bool by_timestamp, int64_t *size) {
    int64_t position = 0;
    while (position < end - p) {
        batch_header h;
        const int status = batch_header_read(p + position, end, &h);
        if (status == STATUS_CUT) {
            break;
        }
        if (status < 0) {
            *size = position;
            return status;
        }
        if ((by_timestamp ? h.max_timestamp : batch_last_offset(&h)) >= least) {
            *size = h.size;
            return position;
        }
        position += h.size;
    }
    *size = position;
    return SEGMENT_NONE;
}

int64_t segment_find_offset(const uint8_t *p, const uint8_t *end, int64_t offset, int64_t *size) {
    return find(p, end, offset, false, size);
}

int64_t segment_find_timestamp(const uint8_t *p, const uint8_t *end, int64_t timestamp, int64_t *size) {
    return find(p, end, timestamp, true, size);
}

int64_t segment_find_producer(const uint8_t *p, const uint8_t *end, bool transactional, int64_t *size) {
    int64_t position = 0;
    while (position < end - p) {
        batch_header h;
        const int status = batch_read(p + position, end, &h);
        if (status < 0) {
            if (position == 0 && status != STATUS_CUT) {
                *size = 0;
                return status;
            }
            break;
        }
        if (h.producer_id != -1 && (!transactional || (h.attributes & ATTRIBUTE_TRANSACTIONAL))) {
            *size = h.size;
            return position;
        }
        position += h.size;
    }
    *size = position;
    return SEGMENT_NONE;
}

int64_t segment_whole_batches(const uint8_t *p, const uint8_t *end, int64_t end_offset, int64_t size_max) {
    int64_t taken = 0;
    while (taken < end - p) {
        batch_header h;
        const int status = batch_read(p + taken, end, &h);
        if (status < 0) {
            return taken == 0 && status != STATUS_CUT ? status : taken;
        }
        if (batch_last_offset(&h) >= end_offset || (taken > 0 && taken + h.size > size_max)) {
            break;
        }
        taken += h.size;
    }
    return taken;
}

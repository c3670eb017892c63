/* Large blocks of memory that are kept for the next use when they come back.
 *
 * Touching a page for the first time costs more than filling it. So any thread puts large blocks
 * back into a few slots, and a later request finds a block of its size there, lowest slot first: a
 * stream gets the same few blocks again, which are in the processor's cache.
 *
 * All functions may be called from any thread, without the GIL. The slots are state of their own,
 * so this is not a kernel; only columns.pyx includes it. */
#ifndef REPLOG_SPARE_BLOCKS_H
#define REPLOG_SPARE_BLOCKS_H

#include <stdint.h>
#include <stdlib.h>

#include "kernels/arrow_abi.h"

enum {
    BLOCK_LARGE = 256 << 10,    /* a block from this size on is kept when it comes back */
    SPARE_COUNT = 128,          /* the most blocks kept */
    SPARE_SIZE_MAX = 96 << 20,  /* the most bytes kept */
    SPARE_HOT_COUNT = 8,        /* the system may take pages of all but so many blocks */
};

typedef struct {
    void *block;
    int64_t size;
} spare_block;

static shared_slot spare_slots[SPARE_COUNT];
static shared_count spare_size; /* bytes in the slots, and those that a thread is just putting there */
static shared_count spare_turn; /* the slot that is emptied next */

static inline void spare_free(spare_block *spare) {
    shared_add(&spare_size, -(long)spare->size);
    free(spare->block);
    free(spare);
}

/* Free the blocks in turn, so that a block of a size that is no longer requested does not stay. */
static inline void spare_free_next(void) {
    spare_block *spare = slot_take(&spare_slots[(unsigned long)shared_add(&spare_turn, 1) % SPARE_COUNT]);
    if (spare != NULL) {
        spare_free(spare);
    }
}

/* Memory of `size` bytes with any content; NULL if there is none. Give it back with block_give. */
static inline void *block_take(int64_t size) {
    void *block = NULL;
    for (int i = 0; i < SPARE_COUNT && size >= BLOCK_LARGE; i++) {
        spare_block *spare = slot_take(&spare_slots[i]);
        if (spare == NULL) {
            continue;
        }
        if (spare->size == size) {
            shared_add(&spare_size, -(long)size);
            block = spare->block;
            free(spare);
            return block;
        }
        if (!slot_put(&spare_slots[i], spare)) { /* another thread filled the slot */
            spare_free(spare);
        }
    }
    if (size < LARGE_PAGE_SIZE) {
        return malloc((size_t)size);
    }
    if (posix_memalign(&block, LARGE_PAGE_SIZE, (size_t)size) != 0) {
        return NULL;
    }
    prefer_large_pages(block, (size_t)(size / LARGE_PAGE_SIZE * LARGE_PAGE_SIZE));
    return block;
}

/* Give back a block of block_take; `size` is the size it was taken with. If too many bytes are
 * kept, other blocks are freed. */
static inline void block_give(void *block, int64_t size) {
    spare_block *spare = NULL;
    if (block != NULL && size >= BLOCK_LARGE && size <= SPARE_SIZE_MAX / 8) {
        spare = malloc(sizeof(spare_block));
    }
    if (spare == NULL) {
        free(block);
        return;
    }
    spare->block = block;
    spare->size = size;
    long total = shared_add(&spare_size, (long)size);
    for (int tries = 0; total > SPARE_SIZE_MAX && tries < SPARE_COUNT; tries++) {
        spare_free_next();
        total = shared_add(&spare_size, 0);
    }
    for (int i = 0; i < SPARE_COUNT; i++) {
        if (i == SPARE_HOT_COUNT && size >= LARGE_PAGE_SIZE) {
            /* Only worth while for large pages: the call visits each small page, which costs a
             * seventh of filling it. */
            pages_spare(block, (size_t)size);
        }
        if (slot_put(&spare_slots[i], spare)) {
            return;
        }
    }
    spare_free_next();
    spare_free(spare);
}

#endif

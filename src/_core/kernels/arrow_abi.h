/* The Arrow C data and stream interfaces, as their specification prints them (a stable ABI: never
 * change), and what their memory needs: shares that are counted, so that exported arrays are
 * released from any thread without the GIL, and large pages. */
#ifndef REPLOG_ARROW_ABI_H
#define REPLOG_ARROW_ABI_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <sys/mman.h>

enum { ARROW_NULLABLE = 2 };

typedef struct arrow_schema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct arrow_schema **children;
    struct arrow_schema *dictionary;
    void (*release)(struct arrow_schema *);
    void *private_data;
} arrow_schema;

typedef struct arrow_array {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct arrow_array **children;
    struct arrow_array *dictionary;
    void (*release)(struct arrow_array *);
    void *private_data;
} arrow_array;

typedef struct arrow_array_stream {
    int (*get_schema)(struct arrow_array_stream *, struct arrow_schema *);
    int (*get_next)(struct arrow_array_stream *, struct arrow_array *);
    const char *(*get_last_error)(struct arrow_array_stream *);
    void (*release)(struct arrow_array_stream *);
    void *private_data;
} arrow_array_stream;

/* A count of shares. */
typedef atomic_long shared_count;

static inline void shared_begin(shared_count *count) { atomic_init(count, 1); }
static inline void shared_take(shared_count *count) { atomic_fetch_add_explicit(count, 1, memory_order_relaxed); }
/* Use the count as a sum. Returns the new sum. */
static inline long shared_add(shared_count *count, long more) {
    return atomic_fetch_add_explicit(count, more, memory_order_relaxed) + more;
}
/* Whether that was the last. What other holders did to the memory has then happened. */
static inline int shared_drop(shared_count *count) {
    return atomic_fetch_sub_explicit(count, 1, memory_order_acq_rel) == 1;
}

/* A place for one pointer, which any thread may fill when it is empty, and any may empty. */
typedef _Atomic(void *) shared_slot;

static inline int slot_put(shared_slot *slot, void *pointer) {
    void *empty = NULL;
    return atomic_compare_exchange_strong_explicit(slot, &empty, pointer, memory_order_acq_rel, memory_order_relaxed);
}
static inline void *slot_take(shared_slot *slot) { return atomic_exchange_explicit(slot, NULL, memory_order_acq_rel); }

enum { LARGE_PAGE_SIZE = 2 << 20 };

/* Ask for large pages behind [p, p + size), both multiples of one: touching 2 MiB for the first
 * time then costs one fault and not 512. A hint: nothing happens where the system has none. */
static inline void prefer_large_pages(void *p, size_t size) {
#ifdef MADV_HUGEPAGE
    (void)madvise(p, size, MADV_HUGEPAGE);
#else
    (void)p;
    (void)size;
#endif
}

/* Tell the system that the bytes of [p, p + size) are not needed: until the next write there, it
 * may take the pages away when memory is short. This is a hint. It covers only pages that are
 * wholly inside, for any page size of the system (4, 16 or 64 KiB), because the system takes whole
 * pages. */
static inline void pages_spare(void *p, size_t size) {
#ifdef MADV_FREE
    const uintptr_t page = 65536;
    const uintptr_t first = ((uintptr_t)p + page - 1) / page * page;
    const uintptr_t last = ((uintptr_t)p + size) / page * page;
    if (first < last) {
        (void)madvise((void *)first, last - first, MADV_FREE);
    }
#else
    (void)p;
    (void)size;
#endif
}

#endif

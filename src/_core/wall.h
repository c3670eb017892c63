/* The wall clock in ms, for callers that ask more often than it changes.
 *
 * Asking the system takes as long as encoding a record. The tick counter of an x86 processor shows
 * much faster that the millisecond of the last answer cannot be over yet: no such counter runs
 * slower than WALL_TICKS_PER_NS_MIN, so a number of ticks is at most so much time. Only counters
 * that never stop nor change their speed are used ("invariant"; if a virtual machine hides that
 * property, the system is asked). So the answer is that of the system, with two exceptions: a clock
 * that is set is noticed up to WALL_TRUST_TICKS later, and the counters of different processors are
 * assumed to agree.
 *
 * The including file must ask for POSIX (`clock_gettime`) before the first system header, as
 * Python.h does. */
#ifndef REPLOG_WALL_H
#define REPLOG_WALL_H

#include <stdint.h>
#include <time.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <cpuid.h>
#include <x86intrin.h>
#define WALL_HAS_TICKS 1
#else
#define WALL_HAS_TICKS 0
#endif

#define WALL_TICKS_PER_NS_MIN 0.5
#define WALL_TRUST_TICKS 20000

/* All zero at first. Belongs to one thread at a time. */
typedef struct {
    int64_t ms;     /* the last answer of the system, */
    uint64_t since; /* the ticks just before it did, */
    uint64_t trust; /* and for how many more the answer is the same */
    int invariant;  /* whether the ticks can be believed: 1 yes, -1 no, 0 not asked yet */
} wall_clock;

#if WALL_HAS_TICKS
static inline int wall_invariant(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d >> 8 & 1u) ? 1 : -1;
}
#endif

/* Milliseconds since 1970 UTC. */
static inline int64_t wall_ms(wall_clock *wall)
{
    struct timespec now;
#if WALL_HAS_TICKS
    uint64_t ticks = __rdtsc();
    if (ticks - wall->since < wall->trust) { /* a counter that went back wraps round to much */
        return wall->ms;
    }
    if (!wall->invariant) {
        wall->invariant = wall_invariant();
    }
    wall->since = ticks;
#endif
    clock_gettime(CLOCK_REALTIME, &now);
    wall->ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (wall->invariant > 0) {
        uint64_t left = (uint64_t)((double)(1000000 - now.tv_nsec % 1000000) * WALL_TICKS_PER_NS_MIN);
        wall->trust = left < WALL_TRUST_TICKS ? left : WALL_TRUST_TICKS;
    }
    return wall->ms;
}

#endif

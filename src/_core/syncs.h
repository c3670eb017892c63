/* Several syncs at once: threads that know nothing of Python, so that who waits for them wakes
 * once, at the end of the last.
 *
 * One group of syncs at a time for each `rl_syncs`, any number of those. The threads are the
 * process's: made when there are too few for what is to be done, they end after some seconds with
 * nothing to do. All functions from any thread, except that `rl_syncs_begin` and `rl_syncs_free`
 * REQUIRE that nobody waits for the group. In the child of a fork the threads are missing: a group
 * that was under way there never ends, a new one is served by new threads.
 *
 * The outcome of each file is that of one rl_file_sync: nothing is tried again but EINTR, which is
 * none. */
#ifndef REPLOG_SYNCS_H
#define REPLOG_SYNCS_H

#include "file.h"

#include <stdint.h>

/* Files in one group. */
#define RL_SYNCS_MAX 8

typedef struct rl_syncs rl_syncs;

/* NULL: no memory. */
rl_syncs *rl_syncs_new(void);

/* Release it: at once, or, where syncs are under way, when the last of them ends. */
void rl_syncs_free(rl_syncs *group);

/* Begin to sync `count` (1 to RL_SYNCS_MAX) files, each of which is held until its sync has ended.
 * 0, or a positive errno, and nothing was begun: EAGAIN where no thread is to be had, EBUSY where
 * the group before has not ended. */
int rl_syncs_begin(rl_syncs *group, rl_file *const *files, int count);

/* Wait until all have ended, up to `timeout_ns`, or until rl_syncs_wake. How many have not ended;
 * `codes` then has 0 or the positive errno of each file, in the order given, and -1 for those. A
 * wake that nobody waited for ends the next wait at once. Where syncs usually end within half a
 * millisecond or so the caller does not sleep, but yields the processor again and again. */
int rl_syncs_wait(rl_syncs *group, int64_t timeout_ns, int *codes);

/* The same until fewer than `below` (from 1) have not ended. */
int rl_syncs_wait_below(rl_syncs *group, int below, int64_t timeout_ns, int *codes);

/* Have who waits go on. */
void rl_syncs_wake(rl_syncs *group);

#endif

/* Several syncs at once, by threads that know nothing of Python, so that the waiting caller wakes
 * once, at the end of the last sync.
 *
 * Each `rl_syncs` has one group of syncs at a time; there may be any number of `rl_syncs`. All
 * share the threads of the process: a thread is started if there are too few, and ends after some
 * idle seconds. Any thread may call any function, except that `rl_syncs_begin` and `rl_syncs_free`
 * REQUIRE that no thread waits for the group. The child of a fork lacks the threads: a group that
 * was running at the fork never ends there, and new threads serve a new group.
 *
 * The outcome of each file is that of one rl_file_sync: only EINTR, which is not an outcome, is
 * tried again. */
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

/* Begin to sync `count` (1 to RL_SYNCS_MAX) files, and hold each until its sync has ended. Returns
 * 0, or a positive errno if no sync began: EAGAIN if no thread can be started, EBUSY if the group
 * before has not ended. */
int rl_syncs_begin(rl_syncs *group, rl_file *const *files, int count);

/* Wait until all syncs have ended, up to `timeout_ns`, or until rl_syncs_wake. Returns the number
 * of unfinished syncs; `codes` has 0 or the positive errno of each file, in the order given, and -1
 * for the unfinished ones. A wake without a waiting caller ends the next wait at once. If syncs
 * usually end within about half a millisecond, the caller does not sleep, but yields the processor
 * again and again. */
int rl_syncs_wait(rl_syncs *group, int64_t timeout_ns, int *codes);

/* The same until fewer than `below` (from 1) have not ended. */
int rl_syncs_wait_below(rl_syncs *group, int below, int64_t timeout_ns, int *codes);

/* Wake the waiting caller. */
void rl_syncs_wake(rl_syncs *group);

#endif

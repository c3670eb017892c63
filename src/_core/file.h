/* One open file: its descriptor, and what became of its syncs.
 *
 * Linux tells of a failed write-back once for each open file description. So of two syncs of one
 * descriptor at the same moment one alone hears of it, and the other is told that all is well; and
 * whoever comes later is, too. Therefore every sync of a file goes through rl_file_sync, which
 * makes one at a time, and notes the first failure before the next can begin: from then on all of
 * them fail.
 *
 * Held by several at once: whoever made it, each group of syncs (syncs.h) that it is in, each sync
 * under way. The last one to let go closes the descriptor, so no sync can meet a number that was
 * given to another file since. All functions from any thread that holds it. In the child of a fork
 * only rl_file_let_go may be used of what the parent made: a thread that is not there may have been
 * at a sync. */
#ifndef REPLOG_FILE_H
#define REPLOG_FILE_H

#include <stdint.h>

typedef struct rl_file rl_file;

/* Takes `fd` over; -1: none. `before`, or NULL: the same file, as it was held before it was opened
 * anew: failures of either are failures of both. NULL: no memory, and `fd` is still the caller's. */
rl_file *rl_file_new(int fd, const rl_file *before);

/* Let go of it; of NULL: nothing. 0, or the positive errno of closing the descriptor, if that was
 * for this call to do. */
int rl_file_let_go(rl_file *file);

/* Sync the content (rl_sync_data), once those under way have ended: 0, or the positive errno of the
 * first that failed. Once one has, there are no more calls. EINTR is no outcome: ask again. */
int rl_file_sync(rl_file *file);

/* Have the system begin to bring `size` bytes from `position` to stable storage
 * (rl_start_writeout). What fails then, nobody may hear of again: so it counts as a sync that
 * failed. Nothing happens where a sync is under way, where there is no such call, where it is not
 * allowed, or where the system says that nothing was begun. */
void rl_file_start_sync(rl_file *file, int64_t position, int64_t size);

/* The errno of the first sync that failed; 0: none has yet. Never waits. */
int rl_file_error(const rl_file *file);

/* How many hold it at this moment. */
int rl_file_users(const rl_file *file);

/* One more holds it. */
void rl_file_hold(rl_file *file);

#endif

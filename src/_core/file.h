/* One open file: its descriptor, and the first error of its syncs.
 *
 * Linux reports a failed write-back once for each open file description. If two threads sync one
 * descriptor at the same time, only one of them gets the error; the other one, and every later
 * sync, succeeds. Therefore every sync of a file goes through rl_file_sync. It runs one sync at a
 * time, and records the first failure before the next sync can begin: from then on all of them
 * fail.
 *
 * A file has several holders: its creator, each group of syncs (syncs.h) that it is in, and each
 * running sync. The last holder to let go closes the descriptor, so no sync can meet a descriptor
 * number that now belongs to another file. Any thread that holds the file may call any function. In
 * the child of a fork, use only rl_file_let_go on a file of the parent: a thread that does not
 * exist in the child may have been in a sync. */
#ifndef REPLOG_FILE_H
#define REPLOG_FILE_H

#include <stdint.h>

typedef struct rl_file rl_file;

/* Take ownership of `fd` (-1: no descriptor). `before`, or NULL, is the same file from before it
 * was opened again: a failure of either counts for both. Returns NULL if there is no memory; then
 * `fd` still belongs to the caller. */
rl_file *rl_file_new(int fd, const rl_file *before);

/* Let go of it; of NULL: nothing. 0, or the positive errno of closing the descriptor, if that was
 * for this call to do. */
int rl_file_let_go(rl_file *file);

/* Sync the content (rl_sync_data), once those under way have ended: 0, or the positive errno of the
 * first that failed. Once one has, there are no more calls. EINTR is no outcome: ask again. */
int rl_file_sync(rl_file *file);

/* Ask the system to begin writing `size` bytes from `position` to stable storage
 * (rl_start_writeout). The system may not report a failure of this again, so a failure counts as a
 * failed sync. The call does nothing if a sync is running, if the system has no such call or does
 * not allow it, or if the system says that it did not begin. */
void rl_file_start_sync(rl_file *file, int64_t position, int64_t size);

/* The errno of the first sync that failed; 0: none has yet. Never waits. */
int rl_file_error(const rl_file *file);

/* How many hold it at this moment. */
int rl_file_users(const rl_file *file);

/* One more holds it. */
void rl_file_hold(rl_file *file);

#endif

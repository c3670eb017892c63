/* System calls that Python's os module lacks, one function each. No loops, no policy.
 *
 * Every function returns 0, or the positive errno of its one system call (never -1, so that no
 * thread-local errno has to survive the way back into Python). ENOSYS means: this system has no
 * such call. None of them retries anything: an error of a sync may be reported once and then
 * forgotten by the kernel, so the caller must see it. */
#ifndef REPLOG_PLATFORM_H
#define REPLOG_PLATFORM_H

#include <stdint.h>

/* Write the content, and the metadata that is needed to read it back, to stable storage, through
 * the drive's own cache. */
int rl_sync_data(int fd);

/* The function that rl_sync_data calls: the system's, unless a test has replaced it by a disk of
 * its own. Set it while no thread syncs. */
extern int (*rl_sync_call)(int fd);

/* The same with all metadata: for directories. */
int rl_sync_all(int fd);

/* Reserve blocks for the first `size` bytes; the file's length stays as it is. */
int rl_preallocate(int fd, int64_t size);

/* Begin to write dirty pages of a range out, without waiting and without any promise. */
int rl_start_writeout(int fd, int64_t position, int64_t size);

/* Forget clean cached pages of a range, so that the next read comes from the device. */
int rl_drop_cache(int fd, int64_t position, int64_t size);

/* A new inotify queue in *fd, which is closed on exec and never blocks. */
int rl_watch_open(int *fd);

/* Have the queue `fd` told of writes to the file `path`, and of its end. */
int rl_watch_add(int fd, const char *path);

#endif

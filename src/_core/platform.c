#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* fallocate, sync_file_range */
#endif

#include "platform.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/inotify.h>
#endif

#if defined(__APPLE__)

/* fsync() on macOS stops at the drive's volatile cache; F_FULLFSYNC goes through it. Some file
 * systems refuse it, and then fsync() is all there is (leveldb/util/env_posix.cc does the same). */
static int sync_content(int fd)
{
    if (fcntl(fd, F_FULLFSYNC) == 0) {
        return 0;
    }
    if (errno != ENOTSUP && errno != EINVAL && errno != ENOTTY) {
        return errno;
    }
    return fsync(fd) == 0 ? 0 : errno;
}

int rl_sync_all(int fd)
{
    return sync_content(fd);
}

int rl_preallocate(int fd, int64_t size)
{
    fstore_t store = {
        .fst_flags = F_ALLOCATEALL, .fst_posmode = F_PEOFPOSMODE, .fst_offset = 0, .fst_length = (off_t)size};
    return fcntl(fd, F_PREALLOCATE, &store) != -1 ? 0 : errno;
}

int rl_start_writeout(int fd, int64_t position, int64_t size)
{
    (void)fd;
    (void)position;
    (void)size;
    return ENOSYS;
}

int rl_drop_cache(int fd, int64_t position, int64_t size)
{
    (void)fd;
    (void)position;
    (void)size;
    return ENOSYS;
}

#else

static int sync_content(int fd)
{
    return fdatasync(fd) == 0 ? 0 : errno;
}

int rl_sync_all(int fd)
{
    return fsync(fd) == 0 ? 0 : errno;
}

int rl_preallocate(int fd, int64_t size)
{
#if defined(__linux__)
    return fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)size) == 0 ? 0 : errno;
#else
    (void)fd;
    (void)size;
    return ENOSYS;
#endif
}

int rl_start_writeout(int fd, int64_t position, int64_t size)
{
#if defined(__linux__)
    return sync_file_range(fd, (off_t)position, (off_t)size, SYNC_FILE_RANGE_WRITE) == 0 ? 0 : errno;
#else
    (void)fd;
    (void)position;
    (void)size;
    return ENOSYS;
#endif
}

int rl_drop_cache(int fd, int64_t position, int64_t size)
{
    return posix_fadvise(fd, (off_t)position, (off_t)size, POSIX_FADV_DONTNEED);
}

#endif

int (*rl_sync_call)(int fd) = sync_content;

int rl_sync_data(int fd)
{
    return rl_sync_call(fd);
}

#if defined(__linux__)

int rl_watch_open(int *fd)
{
    *fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    return *fd >= 0 ? 0 : errno;
}

int rl_watch_add(int fd, const char *path)
{
    return inotify_add_watch(fd, path, IN_MODIFY | IN_DELETE_SELF | IN_MOVE_SELF) >= 0 ? 0 : errno;
}

#else

int rl_watch_open(int *fd)
{
    *fd = -1;
    return ENOSYS;
}

int rl_watch_add(int fd, const char *path)
{
    (void)fd;
    (void)path;
    return ENOSYS;
}

#endif

#include "file.h"

#include "platform.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* Shared by all that one file was, from its first opening on. */
struct health {
    atomic_int users;
    atomic_int error; /* written under the lock, read without it, so that a reader never waits for a disk */
    pthread_mutex_t lock;
};

struct rl_file {
    atomic_int users;
    int fd;
    struct health *health;
};

rl_file *rl_file_new(int fd, const rl_file *before)
{
    rl_file *file = malloc(sizeof *file);
    if (file == NULL) {
        return NULL;
    }
    if (before != NULL) {
        file->health = before->health;
        atomic_fetch_add(&file->health->users, 1);
    } else {
        file->health = malloc(sizeof *file->health);
        if (file->health == NULL || pthread_mutex_init(&file->health->lock, NULL)) {
            free(file->health);
            free(file);
            return NULL;
        }
        atomic_init(&file->health->users, 1);
        atomic_init(&file->health->error, 0);
    }
    atomic_init(&file->users, 1);
    file->fd = fd;
    return file;
}

void rl_file_hold(rl_file *file)
{
    atomic_fetch_add(&file->users, 1);
}

int rl_file_let_go(rl_file *file)
{
    if (file == NULL || atomic_fetch_sub(&file->users, 1) > 1) {
        return 0;
    }
    int code = file->fd < 0 || close(file->fd) == 0 ? 0 : errno;
    if (atomic_fetch_sub(&file->health->users, 1) == 1) {
        /* The mutex is not destroyed, which frees nothing: in the child of a fork a thread that
         * stayed behind may have had it. */
        free(file->health);
    }
    free(file);
    return code;
}

int rl_file_sync(rl_file *file)
{
    struct health *health = file->health;
    rl_file_hold(file);
    pthread_mutex_lock(&health->lock);
    int code = atomic_load(&health->error);
    if (!code) {
        code = rl_sync_data(file->fd);
        if (code && code != EINTR) {
            atomic_store(&health->error, code);
        }
    }
    pthread_mutex_unlock(&health->lock);
    rl_file_let_go(file);
    return code;
}

void rl_file_start_sync(rl_file *file, int64_t position, int64_t size)
{
    struct health *health = file->health;
    if (pthread_mutex_trylock(&health->lock)) {
        return; /* a sync is under way, and could not hear of what fails here */
    }
    if (!atomic_load(&health->error)) {
        const int code = rl_start_writeout(file->fd, position, size);
        switch (code) {
        case 0:
        case EINTR:
        case EAGAIN: /* these three leave all as it was, for the sync to do */
        case ENOMEM:
        case ENOSYS: /* and these say that it cannot be had here */
        case EINVAL:
        case ESPIPE:
        case EPERM:
        case EACCES:
        case EOPNOTSUPP:
            break;
        default:
            atomic_store(&health->error, code);
        }
    }
    pthread_mutex_unlock(&health->lock);
}

int rl_file_error(const rl_file *file)
{
    return atomic_load(&file->health->error);
}

int rl_file_users(const rl_file *file)
{
    return atomic_load(&file->users);
}

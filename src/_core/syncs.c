#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include "syncs.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IDLE_NS INT64_C(5000000000)
#define NS INT64_C(1000000000)
#define AWAKE_NS INT64_C(600000) /* on disks that usually take longer, no thread waits awake */
#define THREADS_MAX 64 /* so that disks that hang leave some to the others */

struct rl_syncs {
    rl_syncs *next;       /* in the queue of groups with files that no thread has taken */
    pthread_cond_t ended; /* or woken */
    int count;
    int taken;
    atomic_int left; /* this and `woken` change under the lock only, and are looked at without it, too */
    int below; /* the waiting caller is woken when fewer than so many are left */
    atomic_int woken;
    int freed;
    int64_t begun_ns;
    int64_t usual_ns; /* from a beginning to the end of the last, about; 0: not known yet */
    rl_file *files[RL_SYNCS_MAX];
    int codes[RL_SYNCS_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows, and of every group */
static pthread_cond_t work;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static rl_syncs *first; /* the queue */
static rl_syncs *last;
static int queued;  /* files that no thread has taken */
static int threads; /* all, */
static int busy;    /* and those that carry one out; the others look at the queue before they sleep */

static int init_cond(pthread_cond_t *cond)
{
#if defined(__APPLE__)
    return pthread_cond_init(cond, NULL);
#else
    pthread_condattr_t attributes;
    int code = pthread_condattr_init(&attributes);
    if (code) {
        return code;
    }
    code = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (!code) {
        code = pthread_cond_init(cond, &attributes);
    }
    pthread_condattr_destroy(&attributes);
    return code;
#endif
}

/* A moment of the monotonic clock, in ns. */
static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS + now.tv_nsec;
}

/* REQUIRES the lock. Until `at_ns` at the latest; may return earlier without cause. */
static void wait_until(pthread_cond_t *cond, int64_t at_ns)
{
    struct timespec moment;
#if defined(__APPLE__)
    int64_t rest_ns = at_ns - now_ns();
    rest_ns = rest_ns > 0 ? rest_ns : 0;
    moment.tv_sec = (time_t)(rest_ns / NS);
    moment.tv_nsec = (long)(rest_ns % NS);
    pthread_cond_timedwait_relative_np(cond, &lock, &moment);
#else
    moment.tv_sec = (time_t)(at_ns / NS);
    moment.tv_nsec = (long)(at_ns % NS);
    pthread_cond_timedwait(cond, &lock, &moment);
#endif
}

/* In a fork's child: the threads stayed in the parent, and one of them may have had the lock. */
static void in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    init_cond(&work);
    first = last = NULL;
    queued = threads = busy = 0;
}

static int init_error = EAGAIN; /* what initialize() came to; 0: all is there */

static void initialize(void)
{
    init_error = init_cond(&work);
    if (!init_error) {
        init_error = pthread_atfork(NULL, NULL, in_child);
    }
}

static void release(rl_syncs *group)
{
    pthread_cond_destroy(&group->ended);
    free(group);
}

static void *serve(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        int64_t until_ns = now_ns() + IDLE_NS;
        while (first == NULL && now_ns() < until_ns) {
            wait_until(&work, until_ns);
        }
        rl_syncs *group = first;
        if (group == NULL) {
            break;
        }
        int place = group->taken++;
        queued--;
        busy++;
        if (group->taken == group->count) {
            first = group->next;
            if (first == NULL) {
                last = NULL;
            }
        }
        rl_file *file = group->files[place];
        int more = queued;
        pthread_mutex_unlock(&lock);
        if (more) {
            pthread_cond_signal(&work); /* each thread wakes the next one, so the caller can go to sleep at once */
        }
        int code;
        do {
            code = rl_file_sync(file);
        } while (code == EINTR);
        rl_file_let_go(file); /* before the caller is woken, so that a close after that closes the descriptor */
        pthread_mutex_lock(&lock);
        busy--;
        group->codes[place] = code;
        if (--group->left == 0) {
            int64_t took_ns = now_ns() - group->begun_ns;
            group->usual_ns = group->usual_ns ? group->usual_ns + (took_ns - group->usual_ns) / 8 : took_ns;
        }
        if (group->left == 0 && group->freed) {
            release(group);
        } else if (group->left < group->below) {
            pthread_cond_signal(&group->ended);
        }
    }
    threads--;
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* REQUIRES the lock. Start a thread for each file in the queue, as far as the system allows it.
 * Returns 0 if there is at least one thread. */
static int employ(void)
{
    int code = 0;
    while (threads - busy < queued && threads < THREADS_MAX && !code) {
        pthread_attr_t attributes;
        code = pthread_attr_init(&attributes);
        if (code) {
            break;
        }
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        sigset_t all, before;
        pthread_t thread;
        sigfillset(&all); /* signals are for Python's threads */
        pthread_sigmask(SIG_SETMASK, &all, &before);
        code = pthread_create(&thread, &attributes, serve, NULL);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
        if (!code) {
            threads++;
        }
    }
    return threads ? 0 : code ? code : EAGAIN;
}

rl_syncs *rl_syncs_new(void)
{
    pthread_once(&once, initialize);
    if (init_error) {
        return NULL;
    }
    rl_syncs *group = calloc(1, sizeof *group);
    if (group != NULL && init_cond(&group->ended)) {
        free(group);
        group = NULL;
    }
    return group;
}

void rl_syncs_free(rl_syncs *group)
{
    pthread_mutex_lock(&lock);
    int left = group->left;
    group->freed = 1;
    pthread_mutex_unlock(&lock);
    if (!left) {
        release(group);
    }
}

int rl_syncs_begin(rl_syncs *group, rl_file *const *files, int count)
{
    if (count < 1 || count > RL_SYNCS_MAX) {
        return EINVAL;
    }
    pthread_mutex_lock(&lock);
    if (group->left) {
        pthread_mutex_unlock(&lock);
        return EBUSY;
    }
    queued += count;
    int code = employ();
    if (code) {
        queued -= count;
        pthread_mutex_unlock(&lock);
        return code;
    }
    for (int i = 0; i < count; i++) {
        rl_file_hold(files[i]);
        group->files[i] = files[i];
        group->codes[i] = -1;
    }
    group->begun_ns = now_ns();
    group->next = NULL;
    group->taken = 0;
    group->count = count;
    group->left = count;
    if (last == NULL) {
        first = group;
    } else {
        last->next = group;
    }
    last = group;
    pthread_mutex_unlock(&lock);
    pthread_cond_signal(&work);
    return 0;
}

/* A sleeping processor is slow to wake: waking the caller and the threads takes a fifth of the time
 * of three syncs on a fast disk. So while disks are that fast, a waiting caller stays awake for the
 * usual time of a sync and half as long again, and yields the processor to other threads. */
static void stay_awake(rl_syncs *group, int64_t timeout_ns)
{
    int64_t until_ns = now_ns() + timeout_ns;
    pthread_mutex_lock(&lock);
    int64_t usual_ns = group->usual_ns;
    int64_t awake_ns = group->begun_ns + usual_ns + usual_ns / 2;
    pthread_mutex_unlock(&lock);
    if (usual_ns == 0 || usual_ns > AWAKE_NS) {
        return;
    }
    if (awake_ns < until_ns) {
        until_ns = awake_ns;
    }
    while (atomic_load(&group->left) && !atomic_load(&group->woken) && now_ns() < until_ns) {
        sched_yield();
    }
}

int rl_syncs_wait(rl_syncs *group, int64_t timeout_ns, int *codes)
{
    if (timeout_ns > 0) {
        stay_awake(group, timeout_ns);
    }
    return rl_syncs_wait_below(group, 1, timeout_ns, codes);
}

int rl_syncs_wait_below(rl_syncs *group, int below, int64_t timeout_ns, int *codes)
{
    int64_t until_ns = now_ns() + timeout_ns;
    pthread_mutex_lock(&lock);
    group->below = below;
    while (group->left >= below && group->left && !group->woken && now_ns() < until_ns) {
        wait_until(&group->ended, until_ns);
    }
    group->woken = 0;
    int left = group->left;
    memcpy(codes, group->codes, (size_t)group->count * sizeof *codes);
    pthread_mutex_unlock(&lock);
    return left;
}

void rl_syncs_wake(rl_syncs *group)
{
    pthread_mutex_lock(&lock);
    group->woken = 1;
    pthread_cond_signal(&group->ended);
    pthread_mutex_unlock(&lock);
}

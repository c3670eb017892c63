"""The usual change of a file that several processes append to, in one call."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int64_t
from libc.string cimport memcmp

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void *buffer, size_t size, int64_t position)
    ssize_t pwrite(int fd, const void *buffer, size_t size, int64_t position)

cdef extern from "<sys/file.h>" nogil:
    int LOCK_EX, LOCK_NB, LOCK_UN
    int flock(int fd, int kind)

cdef extern from "<time.h>" nogil:
    ctypedef long time_t
    struct timespec:
        time_t tv_sec
        long tv_nsec
    int CLOCK_MONOTONIC
    int clock_gettime(int clock, timespec *now)

cdef enum:
    EXPECTED_MAX = 64
    FREE_SIZE = 4
    SLOW_NS = 5000000   # as long as a thread may keep the GIL while others wait for it
    REST = 20           # after a slow change: so many times that long without one

APPEND_DONE = 0
APPEND_REFUSED = 1


cdef int64_t _now_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef int _write(int fd, const char *p, ssize_t size, int64_t position) noexcept:
    """Write all bytes; return 0 or the number of an error."""
    cdef ssize_t count
    while size:
        count = pwrite(fd, p, <size_t>size, position)
        if count <= 0:
            if count and errno == EINTR:
                continue
            return errno if count else EIO
        p += count
        size -= count
        position += count
    return 0


@cython.final
cdef class QuickAppend:
    """QuickAppend()\n--\n
    Appends to an open file under its lock. It keeps the GIL, because the calls take microseconds; giving the GIL away
    would let threads that use one file wait for each other twice in each change. After a change that took longer it
    refuses all for a while, so a slow disk does not stop other threads.
    """

    cdef int64_t rest_until_ns

    def append(self, int fd, int64_t place, bytes expected not None, int64_t position, bytes data not None):
        """append(fd, place, expected, position, data)\n--\n
        Lock the file, write ``data`` at ``position`` if the bytes at ``place`` are ``expected`` and the four at
        ``position`` are zero, and unlock. Return APPEND_DONE; APPEND_REFUSED if nothing was changed; a negative error
        number if the write failed, and then the file is still locked.
        """
        cdef char found[EXPECTED_MAX]
        cdef char free[FREE_SIZE]
        cdef ssize_t size = PyBytes_GET_SIZE(expected)
        cdef int64_t started = _now_ns()
        cdef int64_t took
        cdef int code
        if started < self.rest_until_ns or size > EXPECTED_MAX or flock(fd, LOCK_EX | LOCK_NB):
            return APPEND_REFUSED
        if (
            pread(fd, found, <size_t>size, place) != size
            or memcmp(found, PyBytes_AS_STRING(expected), <size_t>size)
            or pread(fd, free, FREE_SIZE, position) != FREE_SIZE
            or free[0] | free[1] | free[2] | free[3]
        ):
            flock(fd, LOCK_UN)
            return APPEND_REFUSED
        code = _write(fd, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), position)
        if code:
            return -code
        flock(fd, LOCK_UN)
        took = _now_ns() - started
        if took > SLOW_NS:
            self.rest_until_ns = started + REST * took
        return APPEND_DONE

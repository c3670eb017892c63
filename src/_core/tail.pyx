# distutils: sources = src/_core/kernels/segment.c src/_core/kernels/legacy.c src/_core/kernels/index.c src/_core/kernels/batch.c src/_core/kernels/crc32c.c
"""What a read of a log hands out, and the memory of what was appended last.

Followers and readers near the end are served from the very buffers that were appended, without a copy or a system call; others by
``pread``. Every batch of a replicated log passes through here three times, so it is compiled.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int64_t, uint8_t

from kernels cimport check, segment_find_offset, segment_whole_batches

from pyreplog.errors import OutcomeUnknownError

cdef enum:
    COUNT_MAX = 8192  # entries: small ones cost more to keep than their bytes
    COMPACT_COUNT = 256

TAIL_COUNT = COUNT_MAX

cdef object GONE = memoryview(b"")


cdef int64_t position_of(object batches, int64_t offset) except -1:
    # Of the batch that holds `offset`. REQUIRES that one does.
    cdef Py_buffer view
    cdef int64_t size = 0
    PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
    cdef int64_t position = segment_find_offset(<const uint8_t *>view.buf, <const uint8_t *>view.buf + view.len, offset, &size)
    PyBuffer_Release(&view)
    check(<int>position if position < 0 else 0, size)
    return position


cdef int64_t whole_size(object batches, int64_t end_offset, int64_t size_max) except -1:
    # Of the leading whole batches that end at or below `end_offset`, at least one where one is whole.
    cdef Py_buffer view
    PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
    cdef int64_t size = segment_whole_batches(<const uint8_t *>view.buf, <const uint8_t *>view.buf + view.len, end_offset, size_max)
    PyBuffer_Release(&view)
    return check(<int>size, 0) if size < 0 else size


@cython.final
@cython.freelist(16)
cdef class LogSlice:
    """See the stub."""

    cdef object _log
    cdef object _parts
    cdef readonly object offset
    cdef readonly object size
    cdef readonly object generation

    def __init__(self, log, offset, parts, size):
        self._log = log
        self._parts = parts
        self.offset = offset
        self.size = size
        self.generation = log.generation

    def parts(self):
        if self._log.generation != self.generation:
            raise OutcomeUnknownError("reading a slice of the log", "the log was truncated after the slice was cut; read again")
        return list(self._parts)

    def __len__(self):
        return self.size


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class _Entry:
    # The offsets [start, end), in `view`, which has `size` bytes.
    cdef int64_t start
    cdef int64_t end
    cdef int64_t size
    cdef object view


@cython.final
cdef class TailCache:
    """See the stub."""

    cdef readonly int64_t size_max
    cdef readonly int64_t size
    cdef list _entries  # each begins where the one before ends; those below `first` are gone
    cdef Py_ssize_t _first

    def __init__(self, size_max):
        self.size_max = INT64_MAX if size_max > INT64_MAX else size_max
        self.clear()

    def __len__(self):
        return len(self._entries) - self._first

    def append(self, int64_t start, int64_t end, data, int64_t size):
        cdef list entries = self._entries
        cdef _Entry entry
        if size > self.size_max:
            self.clear()
            return
        if entries:
            entry = <_Entry>entries[-1]
            if entry.end != start:
                self.clear()
                entries = self._entries
        entry = _Entry()
        entry.start = start
        entry.end = end
        entry.size = size
        entry.view = data if type(data) is memoryview else memoryview(data)
        entries.append(entry)
        self.size += size
        while self.size > self.size_max or len(entries) - self._first > COUNT_MAX:
            entry = <_Entry>entries[self._first]
            self.size -= entry.size
            entry.view = GONE
            entry.size = 0
            self._first += 1
        if self._first >= COMPACT_COUNT:
            del entries[: self._first]
            self._first = 0

    def read(self, int64_t offset, wanted_max, int64_t end_offset):
        cdef int64_t size_max = INT64_MAX if wanted_max > INT64_MAX else wanted_max
        cdef list entries = self._entries
        cdef Py_ssize_t last = len(entries) - 1
        if last < 0:
            return None
        cdef _Entry entry = <_Entry>entries[last]
        if entry.start == offset and entry.end <= end_offset and entry.size <= size_max:
            return [entry.view], entry.size
        cdef Py_ssize_t slot = self._slot(offset)
        if slot < self._first:
            return None
        entry = <_Entry>entries[slot]
        if offset >= entry.end:
            return None
        view = entry.view
        cdef int64_t size = entry.size
        if entry.start != offset:
            view = view[position_of(view, offset) :]
            size = view.nbytes
        parts = []
        cdef int64_t total = 0
        cdef int64_t taken
        while True:
            if entry.end > end_offset or total + size > size_max:
                # Part of an entry may still fit: it can be many batches. The very first batch is given whatever its size.
                taken = whole_size(view, end_offset, size_max - total)
                if taken and (total == 0 or total + taken <= size_max):
                    parts.append(view[:taken])
                    total += taken
                break
            parts.append(view)
            total += size
            if slot == last:
                break
            slot += 1
            entry = <_Entry>entries[slot]
            view = entry.view
            size = entry.size
        return parts, total

    cdef Py_ssize_t _slot(self, int64_t offset):
        # Of the last entry that begins at or below `offset`, -1 where there is none.
        cdef list entries = self._entries
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = len(entries)
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) // 2
            if (<_Entry>entries[middle]).start <= offset:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def clear(self):
        self._entries = []
        self._first = 0
        self.size = 0

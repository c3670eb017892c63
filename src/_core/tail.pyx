# distutils:sources=[src/_core/kernels/segment.c,src/_core/kernels/legacy.c,src/_core/kernels/index.c,src/_core/kernels/batch.c,src/_core/kernels/crc32c.c]
"""The end of a log: the state that an append checks and changes, the cache of the newest batches, and the slices
that a read returns.

Followers and readers near the end are served from the appended buffers themselves, without a copy or a system call;
others by ``pread``. Each batch of a replicated log passes through this module three times, so it is compiled. It
handles only the usual batches, those that continue the one before. All others are left unchanged to the caller, in
Python.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from kernels cimport (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_TRANSACTIONAL,
    NOGIL_SIZE,
    batch_check_crc,
    batch_header,
    batch_last_offset,
    batch_read,
    batch_stamp,
    check,
    segment_find_offset,
    segment_whole_batches,
)

from pyreplog.errors import OutcomeUnknownError, StorageError

cdef enum:
    COUNT_MAX = 8192  # entries of a tail: the overhead of small ones exceeds their bytes
    COMPACT_COUNT = 256

    ENTRY_COST = 400  # bytes of memory that an entry takes besides its batches
    KEPT_BATCHES = 5  # per producer: a client has at most five in flight
    PENDING_MAX = 128
    UNKNOWN = -2

cdef int64_t SEQUENCE_COUNT = 1 << 31

TAIL_COUNT = COUNT_MAX
ENTRIES_PENDING_MAX = PENDING_MAX
UNKNOWN_POSITION = UNKNOWN

cdef object GONE = memoryview(b"")


cdef int64_t position_of(object batches, int64_t offset) except -1:
    # Return the position of the batch that holds `offset`. REQUIRES that there is one.
    cdef Py_buffer view
    cdef int64_t size = 0
    PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
    cdef const uint8_t *start = <const uint8_t *>view.buf
    cdef int64_t position = segment_find_offset(start, start + view.len, offset, &size)
    PyBuffer_Release(&view)
    check(<int>position if position < 0 else 0, size)
    return position


cdef int64_t whole_size(object batches, int64_t end_offset, int64_t size_max) except -1:
    # Return the size of the leading complete batches that end at or below `end_offset`, but at
    # least of the first complete one.
    cdef Py_buffer view
    PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
    cdef const uint8_t *start = <const uint8_t *>view.buf
    cdef int64_t size = segment_whole_batches(start, start + view.len, end_offset, size_max)
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
            raise OutcomeUnknownError(
                "reading a slice of the log", "the log was truncated after the slice was cut; read again"
            )
        return list(self._parts)

    def __len__(self):
        return self.size


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class _Entry:
    # The batches with the offsets [start, end): `view`, which has `size` bytes.
    cdef int64_t start
    cdef int64_t end
    cdef int64_t size
    cdef object view


@cython.final
cdef class TailBudget:
    """See the stub."""

    cdef readonly int64_t size_max
    cdef readonly int64_t size
    cdef list _tails  # the tails with entries, each at its `_place`
    cdef Py_ssize_t _hand

    def __init__(self, int64_t size_max):
        self.size_max = size_max
        self._tails = []

    def __len__(self):
        return len(self._tails)

    cdef int _enter(self, TailCache tail) except -1:
        # Register `tail` before its first entry, because an append must not fail once the entry is
        # kept.
        self._tails.append(tail)
        tail._place = len(self._tails) - 1
        return 0

    cdef int _charge(self, TailCache tail, int64_t size) except -1:
        # Note that `tail`, which was just appended to, now takes `size` bytes. Allocates nothing.
        cdef TailCache other
        self.size += size - tail._charged
        tail._charged = size
        tail._is_used = True
        while self.size > self.size_max and len(self._tails) > 1:
            # Clock eviction: the hand goes round and empties a tail that was not appended to since
            # its last visit.
            if self._hand >= len(self._tails):
                self._hand = 0
            other = <TailCache>self._tails[self._hand]
            if other is tail or other._is_used:
                other._is_used = False
                self._hand += 1
            else:
                other._drop()
        return 0

    cdef int _leave(self, TailCache tail) except -1:
        cdef TailCache last = <TailCache>self._tails.pop()
        if last is not tail:
            self._tails[tail._place] = last
            last._place = tail._place
        self.size -= tail._charged
        tail._charged = 0
        tail._place = -1
        return 0


@cython.final
cdef class TailCache:
    """See the stub."""

    cdef readonly int64_t size_max
    cdef readonly int64_t size
    cdef list _entries  # each begins at the end of the one before; those below `_first` are dropped
    cdef Py_ssize_t _first
    cdef TailBudget _room
    cdef Py_ssize_t _place
    cdef int64_t _charged
    cdef bint _is_used

    def __init__(self, size_max, TailBudget room=None):
        self.size_max = INT64_MAX if size_max > INT64_MAX else size_max
        self._room = room
        self._place = -1
        self._entries = []

    def __len__(self):
        return len(self._entries) - self._first

    cpdef append(self, int64_t start, int64_t end, data, int64_t size):
        cdef list entries = self._entries
        cdef _Entry entry
        if size > self.size_max:
            self._drop()
            return
        if entries:
            entry = <_Entry>entries[-1]
            if entry.end != start:
                self._drop()
        # Each allocation comes before a change: if one fails, the caller reuses the memory of
        # `data`, so no entry may refer to it.
        if self._first >= COMPACT_COUNT:
            del entries[: self._first]
            self._first = 0
        if self._room is not None and self._place < 0:
            self._room._enter(self)
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
        if self._room is not None:
            self._room._charge(self, self.size + (len(entries) - self._first) * ENTRY_COST)

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
                # A part of an entry may still fit, because it can hold many batches. The first
                # batch is returned whatever its size.
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
        # Return the slot of the last entry that begins at or below `offset`, or -1.
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
        self._drop()

    cdef int _drop(self) except -1:
        # Allocates nothing.
        self._entries.clear()
        self._first = 0
        self.size = 0
        if self._place >= 0:
            self._room._leave(self)
        return 0


# -- appending --


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class SentBatch:
    """See the stub."""

    cdef readonly int64_t last_sequence
    cdef readonly int64_t last_offset
    cdef readonly int64_t offset_delta
    cdef readonly int64_t timestamp

    def __init__(self, int64_t last_sequence, int64_t last_offset, int64_t offset_delta, int64_t timestamp):
        self.last_sequence = last_sequence
        self.last_offset = last_offset
        self.offset_delta = offset_delta
        self.timestamp = timestamp

    @property
    def first_sequence(self):
        cdef int64_t first = self.last_sequence - self.offset_delta
        return first if first >= 0 else first + SEQUENCE_COUNT

    @property
    def base_offset(self):
        return self.last_offset - self.offset_delta

    def __eq__(self, other):
        cdef SentBatch that
        if type(other) is not SentBatch:
            return NotImplemented
        that = <SentBatch>other
        return (
            self.last_sequence == that.last_sequence
            and self.last_offset == that.last_offset
            and self.offset_delta == that.offset_delta
            and self.timestamp == that.timestamp
        )

    def __hash__(self):
        return hash((self.last_sequence, self.last_offset))

    def __repr__(self):
        return (
            f"SentBatch(last_sequence={self.last_sequence}, last_offset={self.last_offset}, "
            f"offset_delta={self.offset_delta}, timestamp={self.timestamp})"
        )


@cython.final
cdef class ProducerEntry:
    """See the stub."""

    cdef readonly int64_t producer_id
    cdef public int64_t epoch
    cdef public int64_t coordinator_epoch
    cdef public int64_t last_timestamp
    cdef public int64_t transaction_start
    cdef public int64_t seen_ms
    cdef readonly list batches

    def __init__(self, producer_id, epoch=-1, coordinator_epoch=-1, last_timestamp=-1, transaction_start=-1):
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.transaction_start = transaction_start
        self.seen_ms = -1
        self.batches = []

    @property
    def last_sequence(self):
        return (<SentBatch>self.batches[-1]).last_sequence if self.batches else -1

    def begin_epoch(self, int64_t epoch):
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = []

    def sent(self, int64_t last_sequence, int64_t last_offset, int64_t offset_delta, int64_t timestamp):
        self._sent(last_sequence, last_offset, offset_delta, timestamp)

    cdef int _sent(self, int64_t last_sequence, int64_t last_offset, int64_t offset_delta, int64_t timestamp) except -1:
        cdef SentBatch batch = SentBatch.__new__(SentBatch)
        batch.last_sequence = last_sequence
        batch.last_offset = last_offset
        batch.offset_delta = offset_delta
        batch.timestamp = timestamp
        self.batches.append(batch)
        self.last_timestamp = timestamp
        self.seen_ms = -1
        if len(self.batches) > KEPT_BATCHES:
            del self.batches[0]
        return 0

    cdef bint _goes_on(self, const batch_header *header) except -1:
        # Return whether a batch outside a transaction is the next one of this producer.
        return (
            header.producer_epoch == self.epoch
            and self.transaction_start < 0
            and len(self.batches) > 0
            and header.base_sequence == (<SentBatch>self.batches[-1]).last_sequence + 1
        )


cdef inline int64_t last_sequence_of(const batch_header *header) noexcept:
    # As in Kafka, 0 follows 2**31 - 1.
    cdef int64_t last = <int64_t>header.base_sequence + header.last_offset_delta
    if header.base_sequence < 0:
        return -1
    return last if last < SEQUENCE_COUNT else last - SEQUENCE_COUNT


cdef ProducerEntry entry_of(object table, int64_t producer_id):
    # Return the entry of a producer, or None if it is not known.
    found = (<dict?>table.entries).get(producer_id)
    return None if found is None else <ProducerEntry?>found


cdef struct Given:
    # A batch to append: its memory, the number of its part, and its header.
    const uint8_t *p
    Py_ssize_t part
    batch_header header


@cython.final
@cython.freelist(8)
cdef class _Group:
    # Batches that are all checked before one write writes them. The group holds the memory of its
    # parts; each part has one batch or more.

    cdef Given single  # most groups have one batch
    cdef Py_buffer single_view
    cdef Given *given
    cdef Py_buffer *views
    cdef Py_ssize_t room
    cdef Py_ssize_t count
    cdef Py_ssize_t part_count
    cdef int64_t size
    cdef bint is_numbered  # whether one of the batches has a producer id
    cdef list parts

    def __cinit__(self):
        self.given = &self.single
        self.views = &self.single_view
        self.parts = []

    def __dealloc__(self):
        while self.part_count:
            self.part_count -= 1
            PyBuffer_Release(&self.views[self.part_count])
        if self.given != &self.single:
            PyMem_Free(self.given)
        if self.views != &self.single_view:
            PyMem_Free(self.views)

    cdef int hold(self, part) except -1:
        # Hold the memory of one more part.
        cdef object data = part if type(part) is memoryview else memoryview(part)
        if self.part_count == self.room:
            raise ValueError(f"there are more batches than the {self.room} that were counted")
        self.parts.append(data)
        try:
            PyObject_GetBuffer(data, &self.views[self.part_count], PyBUF_SIMPLE)
        except BaseException:
            self.parts.pop()
            raise
        self.part_count += 1
        return 0

    cdef int read(self, int64_t position) except? -1:
        # Add the batch at `position` of the newest part, and return the status of its header.
        cdef Py_buffer *view = &self.views[self.part_count - 1]
        cdef Given *given = &self.given[self.count]
        cdef int status
        if self.count == self.room:
            raise ValueError(f"there are more batches than the {self.room} that were counted")
        self.count += 1
        given.p = <const uint8_t *>view.buf + position
        given.part = self.part_count - 1
        status = batch_read(given.p, <const uint8_t *>view.buf + view.len, &given.header)
        if status:
            given.header.size = 0
            return status
        self.size += given.header.size
        if given.header.producer_id != -1:
            self.is_numbered = True
        return 0

    cdef int add(self, batch) except? -1:
        # Hold one more part, add its first batch, and return the status of its header.
        self.hold(batch)
        return self.read(0)

    cdef int drop(self) except -1:
        # Remove the newest part, which has one batch.
        cdef Py_ssize_t i
        self.parts.pop()
        self.count -= 1
        self.part_count -= 1
        self.size -= self.given[self.count].header.size
        PyBuffer_Release(&self.views[self.part_count])
        self.is_numbered = False
        for i in range(self.count):
            if self.given[i].header.producer_id != -1:
                self.is_numbered = True
        return 0

    cdef bytes_of(self, Py_ssize_t i):
        # Return the memory of one batch.
        cdef Given *given = &self.given[i]
        cdef Py_buffer *view = &self.views[given.part]
        cdef int64_t position = given.p - <const uint8_t *>view.buf
        data = self.parts[given.part]
        return data if view.len == given.header.size else data[position : position + given.header.size]

    cdef int check_crcs(self) noexcept nogil:
        cdef Py_ssize_t i
        cdef int status = 0
        for i in range(self.count):
            status = batch_check_crc(self.given[i].p, <size_t>self.given[i].header.size)
            if status:
                break
        return status

    cdef void stamp(self, int64_t base, int32_t leader_epoch) noexcept:
        # Number the batches from `base` on. REQUIRES that each is writable, and that the offsets
        # do not overflow.
        cdef Py_ssize_t i
        for i in range(self.count):
            batch_stamp(<uint8_t *>self.given[i].p, base, leader_epoch)
            self.given[i].header.base_offset = base
            base += self.given[i].header.last_offset_delta + 1

    cdef void forget_stamps(self) noexcept:
        # Reset the stamped fields, because the caller may append the batches again.
        cdef Py_ssize_t i
        for i in range(self.count):
            batch_stamp(<uint8_t *>self.given[i].p, 0, -1)


cdef _Group new_group(Py_ssize_t room):
    cdef _Group group = _Group.__new__(_Group)
    cdef Given *given
    cdef Py_buffer *views
    if room > 1:
        given = <Given *>PyMem_Calloc(<size_t>room, sizeof(Given))
        if given == NULL:
            raise MemoryError
        group.given = given
        views = <Py_buffer *>PyMem_Calloc(<size_t>room, sizeof(Py_buffer))
        if views == NULL:
            raise MemoryError
        group.views = views
    group.room = room
    return group


cdef class SegmentEnd:
    """See the stub."""

    cdef public int64_t size
    cdef public int64_t next_offset
    cdef public int64_t max_timestamp
    cdef public int64_t max_timestamp_offset
    cdef public int64_t first_timestamp
    cdef public int64_t first_producer
    cdef public int64_t bytes_since_entry
    cdef public int64_t entries_left
    cdef public int64_t size_max
    cdef public int64_t roll_offset
    cdef public int64_t roll_timestamp
    cdef public int64_t index_interval
    cdef public int64_t batches_appended
    cdef public int64_t records_appended
    cdef public int64_t bytes_appended
    cdef public int64_t _reserved
    cdef public int64_t _pieces_from
    cdef public Py_ssize_t _pending
    cdef public bint producers_pending
    cdef public bint _torn
    cdef readonly Py_ssize_t tried
    cdef public object _file
    cdef public object _indexes

    def fits(self, int64_t size, Py_ssize_t count, int64_t last_offset, int64_t max_timestamp):
        return self._fits(size, count, last_offset, max_timestamp)

    cdef bint _fits(self, int64_t size, Py_ssize_t count, int64_t last_offset, int64_t max_timestamp) except -1:
        return (
            self.size <= self.size_max - size
            and last_offset < self.roll_offset
            and self.entries_left >= count
            and (max_timestamp <= self.roll_timestamp or not self.is_too_old(max_timestamp))
        )

    def write(self, parts, int64_t size):
        self._write(parts, size)

    cdef int _write(self, parts, int64_t size) except -1:
        if self._file is None or self._torn or self._pending >= PENDING_MAX or self.size + size > self._reserved:
            self.make_ready(size)
        try:
            if size < self._pieces_from:
                self._file.write_at(self.size, parts)
            else:
                self.write_in_pieces(parts)
        except StorageError as error:
            self.take_back(error)
            raise
        except BaseException:
            self._torn = True  # a part may be in the file; the next write truncates it first
            raise
        return 0

    def note(self, int64_t size, int64_t last_offset, int64_t max_timestamp):
        self._note(size, last_offset, max_timestamp)

    cdef int _note(self, int64_t size, int64_t last_offset, int64_t max_timestamp) except -1:
        cdef int64_t position = self.size
        if last_offset == INT64_MAX:
            raise OverflowError(f"no offset follows {last_offset}")
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_entry > self.index_interval and self._make_entry(last_offset, position):
            self._pending += 1
            self.entries_left -= 1
            self.bytes_since_entry = size
        else:
            self.bytes_since_entry += size
        if position == 0:
            self.first_timestamp = max_timestamp
        self.size = position + size
        self.next_offset = last_offset + 1
        return 0

    cdef bint _make_entry(self, int64_t last_offset, int64_t position) except -1:
        # Return whether an index entry was made. Without memory there is none: it is only a hint,
        # and the next batch may get one.
        cdef bint made = False
        try:
            self._indexes.offsets.append(last_offset, position)
            made = True
            if self.max_timestamp >= 0:
                self._indexes.times.append(self.max_timestamp, self.max_timestamp_offset)
        except MemoryError:
            pass
        return made

    def append_next(self, batches, int64_t end_offset, int32_t leader_epoch, TailCache tail not None, producers):
        cdef _Group group = new_group(len(batches))
        cdef int64_t expected = end_offset
        cdef Py_ssize_t size
        cdef Given *given
        cdef int status
        for batch in batches:
            status = group.add(batch)
            given = &group.given[group.count - 1]
            size = group.views[group.part_count - 1].len
            if size == 0:
                return 0
            check(status, 0)
            if (
                given.header.size != size
                or given.header.base_offset != expected
                or given.header.leader_epoch != leader_epoch
                or leader_epoch < 0
                or given.header.attributes & ATTRIBUTE_CONTROL
            ):
                return 0
            expected = batch_last_offset(&given.header) + 1  # batch_read has checked for overflow
            if not self._fits(group.size, group.count, expected - 1, given.header.max_timestamp):
                return 0
        if group.count == 0:
            return 0
        if group.size < NOGIL_SIZE:
            status = group.check_crcs()
        else:
            with nogil:
                status = group.check_crcs()
        check(status, 0)
        self._commit(group, end_offset, tail, producers)
        return group.size

    def append_own(
        self, batches, int64_t end_offset, int32_t leader_epoch, int64_t size_max, TailCache tail not None, producers,
        is_valid,
    ):
        cdef _Group group = new_group(len(batches))
        cdef list places = []
        cdef int64_t base = end_offset
        cdef int64_t before = self.size
        cdef batch_header *header
        cdef int status
        self.tried = 0
        for batch, trusted in batches:
            try:
                status = group.add(batch)
            except Exception:  # an unexpected error is raised again when this batch comes first
                break
            if group.count == 1 and not group.views.readonly:
                check(status, 0)
            if status or not self._may_follow(group, base, size_max, producers) or not (trusted or is_valid(batch)):
                group.drop()
                break
            header = &group.given[group.count - 1].header
            places.append((base, base + header.last_offset_delta, -1, header.record_count, header.size, False))
            base += header.record_count
        if group.count == 0:
            return places
        group.stamp(end_offset, leader_epoch)
        self.tried = group.count
        try:
            self._commit(group, end_offset, tail, producers)
        except BaseException:
            if self.size == before:
                group.forget_stamps()
            raise
        return places

    cdef bint _may_follow(self, _Group group, int64_t base, int64_t size_max, object producers) except -1:
        # Return whether the newest batch of `group` can be stamped with offsets from `base` on and
        # appended after the others.
        cdef Given *given = &group.given[group.count - 1]
        cdef Py_buffer *view = &group.views[given.part]
        cdef batch_header *header = &given.header
        cdef batch_header *before
        cdef ProducerEntry entry
        cdef Py_ssize_t i
        if (
            view.readonly
            or header.size > size_max
            or header.size != view.len
            # in an empty segment the first batch decides which others fit
            or (group.count > 1 and self.size == 0 and self.roll_timestamp == -INT64_MAX)
            or header.record_count <= 0
            or header.last_offset_delta != header.record_count - 1
            or base >= INT64_MAX - header.last_offset_delta
            or header.attributes & (ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL)
            or not self._fits(group.size, group.count, base + header.last_offset_delta, header.max_timestamp)
        ):
            return False
        if header.producer_id == -1:
            return True
        for i in range(group.count - 2, -1, -1):
            before = &group.given[i].header
            if before.producer_id == header.producer_id:
                return (
                    header.producer_epoch == before.producer_epoch
                    and header.base_sequence == last_sequence_of(before) + 1
                )
        entry = entry_of(producers.table, header.producer_id)
        return entry is not None and entry._goes_on(header)

    def commit(self, parts, Py_ssize_t count, int64_t end_offset, TailCache tail not None, producers):
        cdef _Group group = new_group(count)
        cdef int64_t position
        for part in parts:
            if not len(part):
                continue
            group.hold(part)
            position = 0
            while position < group.views[group.part_count - 1].len:
                check(group.read(position), position)
                position += group.given[group.count - 1].header.size
        self.tried = group.count
        self._commit(group, end_offset, tail, producers)

    cdef int _commit(self, _Group group, int64_t end_offset, TailCache tail, object producers) except -1:
        # Write the batches of `group`, which have their offsets, behind `end_offset`. Count them.
        cdef batch_header *header
        cdef int64_t start = end_offset
        cdef int64_t end = end_offset
        cdef Py_ssize_t part
        cdef Py_ssize_t i
        self._write(group.parts, group.size)
        self.producers_pending = group.is_numbered
        try:
            for i in range(group.count):
                header = &group.given[i].header
                self._note(header.size, batch_last_offset(header), header.max_timestamp)
        except BaseException:
            self._torn = True  # the next write truncates the batches that are not counted
            raise
        self.batches_appended += group.count
        self.records_appended += self.next_offset - group.given.header.base_offset
        self.bytes_appended += group.size
        if tail.size_max:
            i = 0
            for part in range(group.part_count):
                while i < group.count and group.given[i].part == part:
                    end = batch_last_offset(&group.given[i].header) + 1
                    i += 1
                tail.append(start, end, group.parts[part], group.views[part].len)
                start = end
        if group.is_numbered:
            self._note_producers(group, producers)
            self.producers_pending = False
        return 0

    cdef int _note_producers(self, _Group group, object producers) except -1:
        cdef batch_header *header
        cdef ProducerEntry entry
        cdef int64_t last_offset
        cdef Py_ssize_t i
        self.first_producer = UNKNOWN
        table = producers.table
        for i in range(group.count):
            header = &group.given[i].header
            if header.producer_id == -1:
                continue
            entry = entry_of(table, header.producer_id)
            if (
                entry is not None
                and entry.epoch == header.producer_epoch
                and not header.attributes & (ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL)
            ):
                last_offset = batch_last_offset(header)
                table.end_offset = last_offset + 1
                entry._sent(last_sequence_of(header), last_offset, header.last_offset_delta, header.max_timestamp)
            else:
                producers.note_bytes(group.bytes_of(i), header.base_offset, self)
        return 0

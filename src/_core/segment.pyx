# distutils:sources=[src/_core/kernels/segment.c,src/_core/kernels/legacy.c,src/_core/kernels/index.c,src/_core/kernels/batch.c,src/_core/kernels/crc32c.c]
"""Walk the batches in a range of bytes; the sparse indexes of a segment. No I/O."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from kernels cimport (
    ATTRIBUTE_CODEC,
    BATCH_HEADER_SIZE,
    NOGIL_SIZE,
    OFFSET_ENTRY_SIZE,
    SEGMENT_NONE,
    STATUS_ORDER,
    STATUS_RANGE,
    TIME_ENTRY_SIZE,
    batch_check_crc,
    batch_find_timestamp,
    batch_header,
    batch_header_read,
    batch_last_offset,
    batch_size_at,
    check,
    index_relative,
    offset_entry,
    offset_entry_at,
    offset_entry_write,
    offset_index_below,
    offset_index_check,
    offset_index_lookup,
    segment_find_offset,
    segment_find_producer,
    segment_find_timestamp,
    segment_scan,
    segment_scan_begin,
    segment_scan_step,
    segment_step,
    segment_whole_batches,
    time_entry,
    time_entry_at,
    time_entry_write,
    time_index_below,
    time_index_check,
    time_index_lookup,
)


# -- entries in memory --


cdef struct Entries:
    uint8_t *p           # owned; NULL before the first entry
    int64_t count
    int64_t capacity     # in entries


cdef int _entries_grow(Entries *entries, int64_t count, size_t entry_size) except -1 nogil:
    """Make room for ``count`` entries in all."""
    cdef int64_t capacity
    cdef uint8_t *p
    if count <= entries.capacity:
        return 0
    capacity = max(count, max(16, 2 * entries.capacity))
    p = <uint8_t *>realloc(entries.p, <size_t>capacity * entry_size)
    if p == NULL:
        with gil:
            raise MemoryError(f"no room for {capacity} index entries")
    entries.p = p
    entries.capacity = capacity
    return 0


cdef int _entries_load(Entries *entries, data, size_t entry_size) except -1:
    """Copy the complete entries of ``data``."""
    cdef Py_buffer view
    cdef int64_t count
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        count = view.len // <Py_ssize_t>entry_size
        _entries_grow(entries, max(count, 1), entry_size)
        memcpy(entries.p, view.buf, <size_t>count * entry_size)
        entries.count = count
    finally:
        PyBuffer_Release(&view)
    return 0


cdef bytes _entries_bytes(Entries *entries, int64_t start, size_t entry_size):
    """Return the entries from slot ``start`` on, in the file's format."""
    if start < 0:
        raise ValueError(f"slot {start} is negative")
    if start >= entries.count:
        return b""
    cdef int64_t size = <int64_t>entry_size
    return PyBytes_FromStringAndSize(<char *>entries.p + start * size, (entries.count - start) * size)


cdef int _check_base(int64_t base_offset) except -1:
    if base_offset < 0:
        raise ValueError(f"base_offset {base_offset} is negative")
    return 0


cdef int _check_slot(int64_t slot, int64_t count) except -1:
    if not 0 <= slot < count:
        raise IndexError(f"slot {slot} of {count} entries")
    return 0


@cython.final
cdef class OffsetIndex:
    """Entries (offset, position) of one segment, in Kafka's 8-byte form, in memory."""

    cdef Entries entries
    cdef int64_t base_offset

    def __cinit__(self, int64_t base_offset, data=b""):
        cdef int64_t good
        _check_base(base_offset)
        self.base_offset = base_offset
        _entries_load(&self.entries, data, OFFSET_ENTRY_SIZE)
        good = offset_index_check(self.entries.p, self.entries.count)
        check(STATUS_ORDER if good < self.entries.count else 0, good * OFFSET_ENTRY_SIZE)

    def __dealloc__(self):
        free(self.entries.p)

    @property
    def count(self):
        return self.entries.count

    @property
    def last(self):
        """(offset, position) of the last entry, or (base offset, 0)."""
        return self._at(self.entries.count - 1)

    def append(self, int64_t offset, int64_t position):
        """Add an entry. Raises CorruptError if the offset does not rise, the position falls, or one does not fit."""
        cdef int32_t relative = 0
        cdef offset_entry previous
        check(index_relative(offset, self.base_offset, &relative), self.entries.count * OFFSET_ENTRY_SIZE)
        check(STATUS_RANGE if position < 0 or position > INT32_MAX else 0, self.entries.count * OFFSET_ENTRY_SIZE)
        if self.entries.count > 0:
            previous = offset_entry_at(self.entries.p, self.entries.count - 1)
            if relative <= previous.relative_offset or position < previous.position:
                check(STATUS_ORDER, self.entries.count * OFFSET_ENTRY_SIZE)
        _entries_grow(&self.entries, self.entries.count + 1, OFFSET_ENTRY_SIZE)
        offset_entry_write(
            self.entries.p + self.entries.count * OFFSET_ENTRY_SIZE, offset_entry(relative, <int32_t>position)
        )
        self.entries.count += 1

    def lookup(self, int64_t offset):
        """Return the greatest entry not above ``offset``, or (base offset, 0)."""
        if offset < self.base_offset:
            return self._at(-1)
        return self._at(offset_index_lookup(self.entries.p, self.entries.count, offset - self.base_offset))

    def truncate(self, int64_t offset):
        """Drop each entry at or above ``offset``."""
        if offset < self.base_offset:
            self.entries.count = 0
        else:
            self.entries.count = offset_index_below(self.entries.p, self.entries.count, offset - self.base_offset)

    def entry(self, int64_t slot):
        """Return (offset, position) in ``slot``, counted from 0."""
        _check_slot(slot, self.entries.count)
        return self._at(slot)

    def data(self, int64_t start=0):
        """Return the entries from slot ``start`` on, in the file's format."""
        return _entries_bytes(&self.entries, start, OFFSET_ENTRY_SIZE)

    cdef tuple _at(self, int64_t slot):
        cdef offset_entry e
        if slot < 0:
            return (self.base_offset, 0)
        e = offset_entry_at(self.entries.p, slot)
        return (self.base_offset + e.relative_offset, e.position)


@cython.final
cdef class TimeIndex:
    """Entries (timestamp, offset) of one segment, in Kafka's 12-byte form, in memory."""

    cdef Entries entries
    cdef int64_t base_offset
    # Owned. By slot: the end position of the entry's batch if a search has checked it, else 0.
    cdef int32_t *ends
    cdef int64_t ends_count

    def __cinit__(self, int64_t base_offset, data=b""):
        cdef int64_t good
        _check_base(base_offset)
        self.base_offset = base_offset
        _entries_load(&self.entries, data, TIME_ENTRY_SIZE)
        good = time_index_check(self.entries.p, self.entries.count)
        check(STATUS_ORDER if good < self.entries.count else 0, good * TIME_ENTRY_SIZE)

    def __dealloc__(self):
        free(self.entries.p)
        free(self.ends)

    @property
    def count(self):
        return self.entries.count

    @property
    def size(self):
        return self.entries.count * TIME_ENTRY_SIZE + self.ends_count * <int64_t>sizeof(int32_t)

    @property
    def last(self):
        """(timestamp, offset) of the last entry, or (-1, base offset)."""
        return self._at(self.entries.count - 1)

    def append(self, int64_t timestamp, int64_t offset):
        """Add an entry. Return False and add nothing if ``timestamp`` is not above the last one.

        Raises CorruptError if the offset falls.
        """
        cdef int32_t relative = 0
        cdef time_entry previous
        check(index_relative(offset, self.base_offset, &relative), self.entries.count * TIME_ENTRY_SIZE)
        if timestamp < 0:
            return False
        if self.entries.count > 0:
            previous = time_entry_at(self.entries.p, self.entries.count - 1)
            if timestamp <= previous.timestamp:
                return False
            check(STATUS_ORDER if relative < previous.relative_offset else 0, self.entries.count * TIME_ENTRY_SIZE)
        _entries_grow(&self.entries, self.entries.count + 1, TIME_ENTRY_SIZE)
        time_entry_write(self.entries.p + self.entries.count * TIME_ENTRY_SIZE, time_entry(timestamp, relative))
        self.entries.count += 1
        return True

    def lookup(self, int64_t timestamp):
        """Return the greatest entry whose timestamp is not above ``timestamp``, or (-1, base offset)."""
        return self._at(time_index_lookup(self.entries.p, self.entries.count, timestamp))

    def truncate(self, int64_t offset):
        """Drop each entry at or above ``offset``."""
        if offset < self.base_offset:
            self.entries.count = 0
        else:
            self.entries.count = time_index_below(self.entries.p, self.entries.count, offset - self.base_offset)
        self.ends_count = min(self.ends_count, self.entries.count)

    def entry(self, int64_t slot):
        """Return (timestamp, offset) in ``slot``, counted from 0."""
        _check_slot(slot, self.entries.count)
        return self._at(slot)

    def data(self, int64_t start=0):
        """Return the entries from slot ``start`` on, in the file's format."""
        return _entries_bytes(&self.entries, start, TIME_ENTRY_SIZE)

    cdef int64_t _end_of(self, int64_t slot) noexcept nogil:
        """Return the end position of the batch of the entry in ``slot``, or 0 if it is not known."""
        return self.ends[slot] if slot < self.ends_count else 0

    cdef void _note_end(self, int64_t slot, int64_t position) noexcept nogil:
        """Note that the entry in ``slot`` is right, and that its batch ends at ``position``.

        Without memory nothing is noted, and the next search checks the entry again.
        """
        cdef int32_t *ends
        if position > INT32_MAX or slot >= self.entries.count:
            return
        if slot >= self.ends_count:
            ends = <int32_t *>realloc(self.ends, <size_t>self.entries.count * sizeof(int32_t))
            if ends == NULL:
                return
            memset(ends + self.ends_count, 0, <size_t>(self.entries.count - self.ends_count) * sizeof(int32_t))
            self.ends = ends
            self.ends_count = self.entries.count
        self.ends[slot] = <int32_t>position

    cdef tuple _at(self, int64_t slot):
        cdef time_entry e
        if slot < 0:
            return (-1, self.base_offset)
        e = time_entry_at(self.entries.p, slot)
        return (e.timestamp, self.base_offset + e.relative_offset)


# -- the scan --


cdef bint _begins_at(const uint8_t *p, int64_t offset) noexcept nogil:
    """Return whether the eight bytes at ``p`` are ``offset``, big-endian."""
    cdef int i
    for i in range(8):
        if p[i] != <uint8_t>((offset >> (56 - 8 * i)) & 0xFF):
            return False
    return True


@cython.final
cdef class SegmentScanner:
    """Walks the batches of one segment, chunk by chunk, and collects its index entries and epochs."""

    cdef segment_scan scan
    cdef Entries offset_index
    cdef Entries time_index
    cdef list epoch_list
    cdef int bad
    cdef int64_t wanted
    cdef bint is_dense
    cdef bint has_gap

    def __cinit__(
        self,
        int64_t base_offset,
        *,
        int64_t position=0,
        int64_t next_offset=-1,
        int64_t index_interval=4096,
        bint check_crc=True,
        bint dense=False,
    ):
        self.is_dense = dense
        _check_base(base_offset)
        if position < 0:
            raise ValueError(f"position {position} is negative")
        if index_interval < 0:
            raise ValueError(f"index_interval {index_interval} is negative")
        if next_offset == -1:
            next_offset = base_offset
        elif next_offset < base_offset:
            raise ValueError(f"next_offset {next_offset} is below base_offset {base_offset}")
        segment_scan_begin(&self.scan, base_offset, position, next_offset, index_interval, check_crc)
        self.epoch_list = []

    def __dealloc__(self):
        free(self.offset_index.p)
        free(self.time_index.p)

    def feed(self, data):
        """Take complete batches from ``data``, which starts at ``position``; return the bytes taken.

        Releases the GIL.
        """
        cdef Py_buffer view
        cdef int64_t taken
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            with nogil:
                taken = self._feed(<const uint8_t *>view.buf, <const uint8_t *>view.buf + view.len)
        finally:
            PyBuffer_Release(&view)
        return taken

    @property
    def status(self):
        """0, or the kernel status of the bad batch at ``position``."""
        return self.bad

    @property
    def needed(self):
        """The size of the batch at ``position`` if its length is known and exceeds the data given, else 0."""
        return self.wanted

    @property
    def gap(self):
        """Whether a ``dense`` scan stopped at a batch at ``position`` that does not begin at ``next_offset``; it
        did not check that batch."""
        return bool(self.has_gap)

    @property
    def position(self):
        return self.scan.position

    @property
    def next_offset(self):
        return self.scan.next_offset

    @property
    def last_epoch(self):
        return self.scan.last_epoch

    @property
    def max_timestamp(self):
        return self.scan.max_timestamp

    @property
    def max_timestamp_offset(self):
        """Last offset of the earliest batch that holds ``max_timestamp``."""
        return self.scan.max_timestamp_offset

    @property
    def batch_count(self):
        return self.scan.batch_count

    @property
    def first_producer(self):
        """Position of the first batch with a producer id, or -1."""
        return self.scan.first_producer

    @property
    def epochs(self):
        """(leader epoch, base offset) of each batch at which the epoch rises."""
        return list(self.epoch_list)

    @property
    def bytes_since_entry(self):
        return self.scan.bytes_since_entry

    def offset_entries(self):
        """Return the ``.index`` content: one entry for each batch that starts more than ``index_interval`` bytes
        after the batch of the last entry."""
        return _entries_bytes(&self.offset_index, 0, OFFSET_ENTRY_SIZE)

    def time_entries(self):
        """Return the ``.timeindex`` content, with the final entry of a closed segment."""
        cdef uint8_t final[TIME_ENTRY_SIZE]
        cdef bytes entries = _entries_bytes(&self.time_index, 0, TIME_ENTRY_SIZE)
        if self.scan.max_timestamp <= self.scan.last_time_entry:
            return entries
        time_entry_write(final, self._latest())
        return entries + PyBytes_FromStringAndSize(<char *>final, TIME_ENTRY_SIZE)

    cdef time_entry _latest(self) noexcept nogil:
        return time_entry(self.scan.max_timestamp, <int32_t>(self.scan.max_timestamp_offset - self.scan.base_offset))

    cdef int64_t _feed(self, const uint8_t *p, const uint8_t *end) except -1 nogil:
        cdef const uint8_t *start = p
        cdef segment_step step
        cdef int64_t begin
        cdef int status
        self.bad = 0
        self.wanted = 0
        while p < end:
            if self.is_dense and end - p >= 8 and not _begins_at(p, self.scan.next_offset):
                self.has_gap = True
                break
            begin = self.scan.position
            status = segment_scan_step(&self.scan, p, end, &step)
            if status <= 0:
                self.bad = status
                if status == 0:
                    self.wanted = batch_size_at(p, end)
                break
            p += step.header.size
            if step.has_entry:
                self._add_entry(begin)
            if step.has_time:
                _entries_grow(&self.time_index, self.time_index.count + 1, TIME_ENTRY_SIZE)
                time_entry_write(self.time_index.p + self.time_index.count * TIME_ENTRY_SIZE, self._latest())
                self.time_index.count += 1
            if step.epoch_rises:
                with gil:
                    self.epoch_list.append((step.header.leader_epoch, step.header.base_offset))
        return p - start

    cdef int _add_entry(self, int64_t position) except -1 nogil:
        """Add the entry (last offset, position) of the batch just taken.

        A position above 2**31 - 1 gets no entry; no segment is that long.
        """
        cdef int32_t relative = <int32_t>(self.scan.next_offset - 1 - self.scan.base_offset)
        if position > INT32_MAX:
            return 0
        _entries_grow(&self.offset_index, self.offset_index.count + 1, OFFSET_ENTRY_SIZE)
        offset_entry_write(
            self.offset_index.p + self.offset_index.count * OFFSET_ENTRY_SIZE, offset_entry(relative, <int32_t>position)
        )
        self.offset_index.count += 1
        return 0


# -- searches by header --


def find_offset(data, int64_t offset):
    """Return (position in ``data``, size) of the first batch whose last offset is at least ``offset``, or (-1,
    the position to continue at)."""
    cdef Py_buffer view
    cdef int64_t size = 0
    cdef int64_t position
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        position = segment_find_offset(<const uint8_t *>view.buf, <const uint8_t *>view.buf + view.len, offset, &size)
    PyBuffer_Release(&view)
    check(<int>position if position < SEGMENT_NONE else 0, size)
    return (position, size)


def find_timestamp(data, int64_t timestamp):
    """Do as :func:`find_offset` for the first batch whose max timestamp is at least ``timestamp``."""
    cdef Py_buffer view
    cdef int64_t size = 0
    cdef int64_t position
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        position = segment_find_timestamp(
            <const uint8_t *>view.buf, <const uint8_t *>view.buf + view.len, timestamp, &size
        )
    PyBuffer_Release(&view)
    check(<int>position if position < SEGMENT_NONE else 0, size)
    return (position, size)


cdef enum:
    SEEK_STEP = 512          # bytes of the first read while only headers are checked
    SEEK_SPAN = 24 * 1024    # a range of at most so many bytes is read at once
    SEEK_CHUNK = 64 * 1024   # most bytes of a read


cdef inline int64_t _slot_of(OffsetIndex offsets, int64_t guess, int32_t relative) noexcept nogil:
    """Return the slot of ``offset_index_lookup``, but try ``guess`` first.

    Most time entries were made together with the offset entry in the same slot.
    """
    if guess < offsets.entries.count and offset_entry_at(offsets.entries.p, guess).relative_offset == relative:
        return guess
    return offset_index_lookup(offsets.entries.p, offsets.entries.count, relative)


@cython.final
cdef class TimeSearch:
    """The usual search by time, in one segment without gaps. It says which bytes it needs next, is fed them, and
    ends with the record or gives up."""

    cdef TimeIndex times
    cdef int64_t timestamp
    cdef int64_t start_offset      # of the log
    cdef int64_t search_start      # a batch that ends below it cannot hold the answer
    cdef int64_t end_offset
    cdef int64_t size              # of the segment
    # The anchor is the batch that the search begins at.
    cdef int64_t anchor_last       # its last offset, by the index; -1: begin at `expected`
    cdef int64_t anchor_timestamp  # its greatest timestamp, by the index; -1: it does not matter
    cdef int64_t anchor_slot       # its time entry, if not yet checked against the log; -1: none
    cdef int64_t expected          # base offset of the batch at `at`; -1: not known yet
    cdef int64_t change            # the offset at which the leader epoch ends
    cdef int64_t target            # by the index, the answer lies in [target, target_end)
    cdef int64_t target_end
    cdef int64_t at                # position of the next read
    cdef int64_t want              # its size; 0: the search is over
    cdef int64_t step
    cdef int64_t offset
    cdef int64_t found
    cdef int32_t epoch

    def __cinit__(
        self,
        TimeIndex times,
        OffsetIndex offsets,
        int64_t timestamp,
        int64_t start_offset,
        int64_t end_offset,
        int64_t size,
    ):
        cdef const uint8_t *entries = offsets.entries.p
        cdef int64_t count = offsets.entries.count
        cdef time_entry entry
        cdef int64_t last
        cdef int64_t slot
        self.times = times
        self.timestamp = timestamp
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.size = size
        self.offset = -1
        self.epoch = -1
        self.change = 0
        self.step = SEEK_STEP
        self.anchor_timestamp = -1
        self.anchor_slot = -1
        self.search_start = offsets.base_offset
        last = time_index_lookup(times.entries.p, times.entries.count, timestamp - 1) if timestamp > 0 else -1
        slot = -1
        if last >= 0:
            # No record up to the batch of the last entry below `timestamp` is new enough, provided
            # that the entry is right: the search must check its batch.
            entry = time_entry_at(times.entries.p, last)
            slot = _slot_of(offsets, last, entry.relative_offset)
            if slot >= 0 and offset_entry_at(entries, slot).relative_offset == entry.relative_offset:
                self.anchor_timestamp = entry.timestamp
                self.anchor_slot = last
            elif last > 0:
                # Begin one entry earlier, so that a single wrong entry cannot hide a record.
                entry = time_entry_at(times.entries.p, last - 1)
                slot = _slot_of(offsets, last - 1, entry.relative_offset)
            else:
                slot = -1
            if slot >= 0:
                self.search_start = offsets.base_offset + entry.relative_offset
        if start_offset > self.search_start:
            self.search_start = start_offset
            self.anchor_timestamp = self.anchor_slot = -1
            slot = offset_index_lookup(entries, count, start_offset - offsets.base_offset)
        self.anchor_last = -1
        self.expected = offsets.base_offset
        if self.anchor_slot >= 0 and times._end_of(self.anchor_slot):
            # An earlier search has checked the entry, so this one begins after its batch.
            self.at = times._end_of(self.anchor_slot)
            self.expected = self.search_start + 1
            self.anchor_slot = -1
        elif slot >= 0:
            self.at = offset_entry_at(entries, slot).position
            self.anchor_last = offsets.base_offset + offset_entry_at(entries, slot).relative_offset
            self.expected = -1
        # The answer should not lie after the first entry that reaches the timestamp.
        self.target = INT64_MAX
        self.target_end = size
        if last + 1 < times.entries.count:
            slot = _slot_of(offsets, last + 1, time_entry_at(times.entries.p, last + 1).relative_offset)
            self.target = 0 if slot < 0 else offset_entry_at(entries, slot).position
            if slot + 1 < count:
                self.target_end = offset_entry_at(entries, slot + 1).position
        self._ask()

    @property
    def anchor(self):
        """An offset of the batch that the search begins at."""
        return self.anchor_last if self.expected < 0 else self.expected

    def expect(self, int32_t epoch, int64_t change):
        """Expect that the batches up to offset ``change`` have leader ``epoch``; -1: any epoch."""
        self.epoch = epoch
        self.change = change

    @property
    def position(self):
        """The position of the next read."""
        return self.at

    @property
    def wanted(self):
        """The number of bytes to read next; 0: the search is over."""
        return self.want

    @property
    def answer(self):
        """(offset, timestamp) of the record, or None if only a thorough search can find it."""
        return None if self.offset < 0 else (self.offset, self.found)

    def feed(self, data):
        """Take the bytes that were read at :attr:`position`."""
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        if view.len < NOGIL_SIZE:
            self._feed(<const uint8_t *>view.buf, view.len)
        else:
            with nogil:
                self._feed(<const uint8_t *>view.buf, view.len)
        PyBuffer_Release(&view)

    def run(self, read_at):
        """Feed the bytes of ``read_at(position, size)`` until the search is over, and return the answer."""
        while self.want:
            self.feed(read_at(self.at, self.want))
        return None if self.offset < 0 else (self.offset, self.found)

    cdef void _ask(self) noexcept nogil:
        """Set the size of the next read, for a batch whose size is not known."""
        if self.target == INT64_MAX:
            self.want = SEEK_CHUNK
        elif self.at >= self.target or self.target_end - self.at <= SEEK_SPAN:
            self.want = min(max(self.target_end - self.at, SEEK_STEP), SEEK_CHUNK)
        else:
            self.want = self.step
        self.want = max(min(self.want, self.size - self.at), 0)

    cdef void _feed(self, const uint8_t *start, int64_t size) noexcept nogil:
        cdef const uint8_t *p = start
        cdef const uint8_t *end = start + size
        cdef batch_header header
        cdef int64_t position = 0
        cdef int64_t before = self.at
        while end - p >= BATCH_HEADER_SIZE:
            # Give up on each irregularity: the thorough search reports it with a better error.
            if batch_header_read(p, end, &header) < 0 or header.size > self.size - self.at:
                break
            if self.expected < 0 and batch_last_offset(&header) == self.anchor_last:
                if self.anchor_timestamp >= 0 and header.max_timestamp != self.anchor_timestamp:
                    break
                self.expected = header.base_offset
            if header.base_offset != self.expected or header.base_offset >= min(self.change, self.end_offset):
                break
            if self.epoch != -1 and header.leader_epoch != self.epoch:
                break
            if self.anchor_slot >= 0 and header.base_offset > self.anchor_last:
                # The entry of the anchor is right, and its batch ends here.
                self.times._note_end(self.anchor_slot, self.at)
                self.anchor_slot = -1
            if header.max_timestamp >= self.timestamp and batch_last_offset(&header) >= self.search_start:
                if header.attributes & ATTRIBUTE_CODEC:
                    break
                if header.size > end - p:
                    # Read this batch completely. If that was requested already, the file has been
                    # shortened.
                    if self.at == before and self.want >= header.size:
                        break
                    self.want = header.size
                    return
                self.want = 0
                if (
                    batch_check_crc(p, <size_t>header.size) < 0
                    or batch_find_timestamp(
                        &header, p + BATCH_HEADER_SIZE, p + header.size, self.timestamp, self.start_offset,
                        &self.offset, &self.found, &position,
                    ) <= 0
                    or self.offset >= self.end_offset
                ):
                    self.offset = -1
                return
            self.expected = batch_last_offset(&header) + 1
            self.at += header.size
            if header.size >= end - p:
                self._ask()
                return
            self.step = min(2 * self.step, SEEK_CHUNK)  # the batches are small: read more of them
            p += header.size
        else:
            if self.at > before:
                self._ask()
                return
        self.want = 0


def find_producers(data, bint transactional=False):
    """Return the positions in ``data`` of the complete batches with a producer id, and the end of the complete
    batches."""
    cdef Py_buffer view
    cdef int64_t size = 0
    cdef int64_t start = 0
    cdef int64_t position = 0
    cdef list found = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while True:
            with nogil:
                position = segment_find_producer(
                    <const uint8_t *>view.buf + start, <const uint8_t *>view.buf + view.len, transactional, &size
                )
            if position < SEGMENT_NONE:
                if start == 0:
                    check(<int>position, 0)
                break
            if position == SEGMENT_NONE:
                start += size
                break
            found.append(start + position)
            start += position + size
    finally:
        PyBuffer_Release(&view)
    return found, start


def whole_batches(data, int64_t end_offset, int64_t size_max):
    """Return the size of the leading complete batches that end at or below ``end_offset``, but at least of the first
    complete one."""
    cdef Py_buffer view
    cdef int64_t size
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    size = segment_whole_batches(<const uint8_t *>view.buf, <const uint8_t *>view.buf + view.len, end_offset, size_max)
    PyBuffer_Release(&view)
    return check(<int>size, 0) if size < 0 else size

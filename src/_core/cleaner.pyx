# distutils: sources = src/_core/kernels/clean.c src/_core/kernels/batch.c src/_core/kernels/crc32c.c
"""Compaction: the newest offset of each key, and batches without the records that are replaced. No I/O."""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from kernels cimport (
    BATCH_HEADER_SIZE,
    NOGIL_SIZE,
    batch_header,
    batch_header_read,
    batch_header_write,
    batch_record,
    check,
    clean_batches,
    clean_counts,
    clean_find_gaps,
    clean_judge,
    clean_rules,
    clean_verdict,
    clean_walk,
    clean_write,
    cursor,
    keymap,
    keymap_find,
    keymap_note_batches,
    keymap_note_records,
    keymap_slot,
    record_read,
)

CLEAN_OTHER = 1
CLEAN_FULL = 2
CLEAN_ROOM = 3
CLEAN_GAP = 4

cdef enum:
    SECRET_SIZE = 16
    LOAD_TENTHS = 9      # of ten slots, so many are used at most
    RECORD_SIZE_MIN = 7
    RECORD_GROWTH_MAX = 15  # a record's new timestamp and the length before it


cdef int _read_header(object header, batch_header *out) except -1:
    """Read the header of a batch from its bytes. Raise for a bad one."""
    cdef Py_buffer view
    PyObject_GetBuffer(header, &view, PyBUF_SIMPLE)
    try:
        check(batch_header_read(<const uint8_t *>view.buf, <const uint8_t *>view.buf + view.len, out), 0)
    finally:
        PyBuffer_Release(&view)
    return 0


@cython.final
cdef class BatchWalk:
    """The place of a walk over the batches of one segment. Belongs to one thread."""

    cdef clean_walk walk
    cdef Py_buffer gaps
    cdef bint has_gaps

    def __init__(self, long long next_offset, gaps=None):
        """``next_offset``: where the first batch must begin. ``gaps``: the recorded gaps of the segment, as native
        64-bit pairs of a start and an end; None: any gap may be there."""
        if self.has_gaps:
            raise ValueError("a walk is made once")
        memset(&self.walk, 0, sizeof(clean_walk))
        self.walk.next_offset = next_offset
        self.walk.leader_epoch = -1
        self.walk.dense = gaps is not None
        if gaps is not None:
            PyObject_GetBuffer(gaps, &self.gaps, PyBUF_SIMPLE)
            self.has_gaps = True
            self.walk.gaps.pairs = <const int64_t *>self.gaps.buf
            self.walk.gaps.count = self.gaps.len // (2 * <Py_ssize_t>sizeof(int64_t))

    def __dealloc__(self):
        if self.has_gaps:
            PyBuffer_Release(&self.gaps)

    @property
    def position(self):
        """The bytes of the batches of the present data that are done."""
        return self.walk.position

    @property
    def next_offset(self):
        """The end of the last batch that is done."""
        return self.walk.next_offset

    def begin(self):
        """Begin with other data, whose first batch is the next one."""
        self.walk.position = 0

    def step(self, long long size, long long next_offset, int leader_epoch):
        """Note that the caller did the next batch, of ``size`` bytes, which ends at ``next_offset``."""
        self.walk.leader_epoch = leader_epoch
        self.walk.position += size
        self.walk.next_offset = next_offset


@cython.final
cdef class KeyMap:
    """The newest offset of each key, by a keyed hash of 128 bits. Belongs to one thread."""

    cdef keymap map
    #: The last offset up to which all records were noted; -1 before the first.
    cdef readonly int64_t latest

    def __cinit__(self, size_t size, secret):
        """``size``: bytes of memory, at least for one key. ``secret``: 16 random bytes."""
        cdef const uint8_t[::1] seed = secret
        cdef size_t slots = size // sizeof(keymap_slot)
        if seed.shape[0] != SECRET_SIZE:
            raise ValueError(f"the secret has {seed.shape[0]} bytes; it must have {SECRET_SIZE}")
        memset(&self.map, 0, sizeof(keymap))
        if slots < 2:
            slots = 2
        self.map.slots = <keymap_slot *>calloc(slots, sizeof(keymap_slot))
        if self.map.slots == NULL:
            raise MemoryError(f"no room for {slots} keys of a compaction")
        self.map.slot_count = slots
        self.map.used_max = slots * LOAD_TENTHS // 10  # one slot stays empty, so that each search ends
        memcpy(self.map.secret, &seed[0], SECRET_SIZE)
        self.latest = -1

    def __dealloc__(self):
        free(self.map.slots)

    def __len__(self):
        return self.map.used

    @property
    def capacity(self):
        """The greatest number of keys."""
        return self.map.used_max

    def get(self, const uint8_t[::1] key not None):
        """Return the newest offset of ``key``; -1 if it was not noted."""
        cdef uint8_t none = 0
        cdef const uint8_t *p = &key[0] if key.shape[0] else &none
        return keymap_find(&self.map, p, <int32_t>key.shape[0])

    def note(self, BatchWalk walk not None, data, long long start_offset):
        """Note the keys of the plain batches of ``data`` from ``start_offset`` on, and return why the walk ended.

        Raises CorruptError for a damaged batch."""
        cdef Py_buffer view
        cdef int why
        cdef const uint8_t *p
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            p = <const uint8_t *>view.buf
            if view.len >= NOGIL_SIZE:
                with nogil:
                    why = keymap_note_batches(&self.map, &walk.walk, p, p + view.len, start_offset, &self.latest)
            else:
                why = keymap_note_batches(&self.map, &walk.walk, p, p + view.len, start_offset, &self.latest)
        finally:
            PyBuffer_Release(&view)
        return check(why, walk.walk.position)

    def note_records(self, header, payload, long long start_offset):
        """Note the keys of one batch: its ``header`` bytes and its uncompressed records. Return whether all are
        noted; False if the map is full."""
        cdef Py_buffer view
        cdef batch_header h
        cdef int why
        cdef int64_t bad = 0
        _read_header(header, &h)
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            with nogil:
                why = keymap_note_records(&self.map, &h, <const uint8_t *>view.buf,
                                          <const uint8_t *>view.buf + view.len, start_offset, &self.latest, &bad)
        finally:
            PyBuffer_Release(&view)
        check(why, bad)
        return why == 0

    def seen(self, long long offset):
        """Note that all records up to and with ``offset`` were looked at."""
        self.latest = max(self.latest, offset)


@cython.final
cdef class BatchCleaner:
    """Takes the batches of the segments of one pass, and keeps the rest of them. Belongs to one thread."""

    cdef clean_rules rules
    cdef clean_counts counts
    cdef KeyMap map      # keeps the memory of `rules.map`
    cdef uint8_t *out    # owned
    cdef int64_t capacity
    cdef int64_t written
    cdef uint8_t *bits   # owned
    cdef int64_t bits_size

    def __cinit__(self, KeyMap map not None, long long map_end, long long round_end, long long now_ms,
                  bint drop_unkeyed, size_t capacity, long long droppable_end):
        """``map_end``: records from here on are not in the map. ``capacity``: bytes of output at once. No tombstone
        from ``droppable_end`` on is dropped."""
        self.map = map
        self.rules.map = &map.map
        self.rules.map_end = map_end
        self.rules.round_end = round_end
        self.rules.now_ms = now_ms
        self.rules.drop_unkeyed = drop_unkeyed
        self.rules.droppable_end = droppable_end
        memset(&self.counts, 0, sizeof(clean_counts))
        self.counts.dropped_tombstone = -1
        self.capacity = <int64_t>capacity
        self.written = 0
        self.bits = NULL
        self.bits_size = 0
        self.out = <uint8_t *>malloc(capacity)
        if self.out == NULL:
            raise MemoryError(f"no room for {capacity} bytes of cleaned batches")

    def __dealloc__(self):
        free(self.out)
        free(self.bits)

    cdef int _make_bits(self, int64_t size) except -1:
        cdef int64_t wanted = size // (8 * RECORD_SIZE_MIN) + 1
        cdef uint8_t *p
        if wanted > self.bits_size:
            p = <uint8_t *>realloc(self.bits, <size_t>wanted)
            if p == NULL:
                raise MemoryError(f"no room for {wanted} bytes")
            self.bits, self.bits_size = p, wanted
        return 0

    def clean(self, BatchWalk walk not None, data):
        """Clean the plain batches of ``data``, and return why the walk ended.

        Raises CorruptError for a damaged batch."""
        cdef Py_buffer view
        cdef int why
        cdef const uint8_t *p
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            self._make_bits(view.len)
            p = <const uint8_t *>view.buf
            with nogil:
                why = clean_batches(&self.rules, &walk.walk, p, p + view.len, self.bits, self.out,
                                    self.out + self.capacity, &self.written, &self.counts)
        finally:
            PyBuffer_Release(&view)
        return check(why, walk.walk.position)

    def make_room(self, size_t size):
        """Have room for a batch that had ``size`` bytes. REQUIRES that :meth:`take` left nothing."""
        cdef size_t wanted = size + size // RECORD_SIZE_MIN * RECORD_GROWTH_MAX + BATCH_HEADER_SIZE
        cdef uint8_t *p
        if self.written:
            raise ValueError("the output was not taken")
        if <int64_t>wanted > self.capacity:
            p = <uint8_t *>realloc(self.out, wanted)
            if p == NULL:
                raise MemoryError(f"no room for {wanted} bytes of cleaned batches")
            self.out, self.capacity = p, <int64_t>wanted

    def take(self):
        """Return the output so far, and forget it. The memory is borrowed: use it before the next call, and not
        longer than this object."""
        cdef Py_ssize_t size = <Py_ssize_t>self.written
        self.written = 0
        return PyMemoryView_FromMemory(<char *>self.out, size, PyBUF_READ)

    def judge(self, header, payload):
        """Judge the uncompressed records of one batch, for :meth:`rewrite`.

        Return (records kept, tombstones kept, timestamp of the first kept record, greatest timestamp)."""
        cdef Py_buffer view
        cdef batch_header h
        cdef clean_verdict v
        cdef int status
        cdef int64_t bad = 0
        _read_header(header, &h)
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            self._make_bits(view.len)
            with nogil:
                status = clean_judge(&self.rules, &h, <const uint8_t *>view.buf, <const uint8_t *>view.buf + view.len,
                                     self.bits, &v, &bad)
        finally:
            PyBuffer_Release(&view)
        check(status, bad)
        self.counts.records_read += h.record_count
        self.counts.records_kept += v.kept
        self.counts.unkeyed += v.unkeyed
        self.counts.dropped_tombstone = max(self.counts.dropped_tombstone, v.dropped_tombstone)
        return v.kept, v.kept_tombstones, v.first_timestamp, v.max_timestamp

    def keep_all(self, payload):
        """Have the next :meth:`rewrite`, of ``payload``, keep all records."""
        self._make_bits(len(payload))
        memset(self.bits, 0xff, <size_t>self.bits_size)

    def rewrite(self, header, payload, long long base_timestamp):
        """Return the records that the last :meth:`judge` kept, with timestamps relative to ``base_timestamp``.
        REQUIRES the arguments of that call."""
        cdef Py_buffer view
        cdef batch_header h
        cdef uint8_t *p
        cdef uint8_t *behind
        cdef size_t room
        _read_header(header, &h)
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            room = <size_t>(view.len + view.len // RECORD_SIZE_MIN * RECORD_GROWTH_MAX + BATCH_HEADER_SIZE)
            p = <uint8_t *>malloc(room)
            if p == NULL:
                raise MemoryError(f"no room for {room} bytes of cleaned records")
            try:
                with nogil:
                    behind = clean_write(&h, <const uint8_t *>view.buf, <const uint8_t *>view.buf + view.len,
                                         self.bits, base_timestamp, p, p + room)
                if behind == NULL:
                    raise ValueError("other records than those that were judged")
                return PyBytes_FromStringAndSize(<char *>p, behind - p)
            finally:
                free(p)
        finally:
            PyBuffer_Release(&view)

    @property
    def records_read(self):
        """Records of the batches so far."""
        return self.counts.records_read

    @property
    def records_kept(self):
        """The records among them that stay."""
        return self.counts.records_kept

    @property
    def unkeyed(self):
        """The records without a key that were dropped."""
        return self.counts.unkeyed

    @property
    def dropped_tombstone(self):
        """The highest offset of a tombstone that was dropped because of its age; -1: none was."""
        return self.counts.dropped_tombstone


def find_gaps(data, long long next_offset):
    """Return the gaps between the whole batches of ``data`` as bytes, native 64-bit pairs of a start and an end, and
    the end of the last batch. The first batch should begin at ``next_offset``."""
    cdef Py_buffer view
    cdef int64_t pairs[128]
    cdef int64_t end = next_offset, position = 0, at = 0, count
    cdef const uint8_t *p
    found = bytearray()
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        while at < view.len:
            count = clean_find_gaps(p + at, p + view.len, &end, pairs, 64, &position)
            check(<int>count, at + position)
            found += (<char *>pairs)[:<size_t>count * 2 * sizeof(int64_t)]
            at += position
    finally:
        PyBuffer_Release(&view)
    return bytes(found), end


def write_header(buffer, int record_count, int attributes, long long base_timestamp, long long max_timestamp):
    """Make ``buffer``, a batch whose old header is in place, a batch with these values, its size and its checksum."""
    cdef Py_buffer view
    cdef batch_header h
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        check(batch_header_read(<const uint8_t *>view.buf, <const uint8_t *>view.buf + view.len, &h), 0)
        h.size = <int32_t>view.len
        h.record_count = record_count
        h.attributes = <short>attributes
        h.base_timestamp = base_timestamp
        h.max_timestamp = max_timestamp
        batch_header_write(<uint8_t *>view.buf, &h)
    finally:
        PyBuffer_Release(&view)


def find_unkeyed(header, payload):
    """Return the offset of the first record without a key in one batch: its ``header`` bytes and its uncompressed
    records. Return -1 if all have one."""
    cdef Py_buffer view
    cdef batch_header h
    cdef batch_record r
    cdef cursor c
    _read_header(header, &h)
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        c.p = <const uint8_t *>view.buf
        c.end = c.p + view.len
        for _ in range(h.record_count):
            check(record_read(&c, &r), c.p - <const uint8_t *>view.buf)
            if r.key_size < 0:
                return h.base_offset + r.offset_delta
        return -1
    finally:
        PyBuffer_Release(&view)

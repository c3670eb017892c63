# distutils: sources = src/_core/kernels/batch.c src/_core/kernels/crc32c.c
"""Record and RecordBatch: views over bytes. The kernels know the format; policy is in Python."""

from datetime import datetime

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from kernels cimport (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_DELETE_HORIZON,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TIMELESS,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_HEADER_SIZE,
    BATCH_LOG_OVERHEAD,
    NOGIL_SIZE,
    STATUS_COUNT,
    STATUS_CUT,
    STATUS_ORDER,
    STATUS_TRAILING,
    batch_check_crc,
    batch_check_part,
    batch_check_records,
    batch_find_timestamp,
    batch_header,
    batch_header_write,
    batch_is_timeless,
    batch_last_offset,
    batch_part,
    batch_read,
    batch_record,
    batch_record_timestamp,
    batch_stamp,
    check,
    crc32c_update,
    cursor,
    header_read,
    record_header,
    record_read,
    record_size,
    record_write,
    store_u32,
)

from pyreplog.errors import CorruptError, excerpt
from pyreplog.timestamps import record_ms
from pyreplog.values import TimestampType

HEADER_SIZE = BATCH_HEADER_SIZE
LOG_OVERHEAD = BATCH_LOG_OVERHEAD

cdef object CREATE_TIME = TimestampType.CREATE_TIME
cdef object LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME
cdef object NO_TIME = TimestampType.NONE


cdef inline object _timestamp_type(const batch_header *header):
    """Return the type of the timestamps of a batch.

    It is NONE only for a batch that was made in memory from messages of magic 0; no log has such a batch.
    """
    if header.attributes & ATTRIBUTE_LOG_APPEND_TIME:
        return LOG_APPEND_TIME
    return NO_TIME if batch_is_timeless(header) else CREATE_TIME


def crc32c(data, uint32_t value=0):
    """Return the CRC-32C (Castagnoli) of ``data``, continuing from ``value``. Releases the GIL above 5 KiB."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    if view.len < NOGIL_SIZE:
        value = crc32c_update(value, <const uint8_t *>view.buf, <size_t>view.len)
    else:
        with nogil:
            value = crc32c_update(value, <const uint8_t *>view.buf, <size_t>view.len)
    PyBuffer_Release(&view)
    return value


def stamp(batch, int64_t base_offset, int32_t leader_epoch):
    """Write ``base_offset`` and ``leader_epoch`` into the header of the (writable) batch.

    The CRC covers neither of them.
    """
    cdef Py_buffer view
    if base_offset < 0:
        raise ValueError(f"base_offset {base_offset} is negative")
    PyObject_GetBuffer(batch, &view, PyBUF_WRITABLE)
    try:
        check(STATUS_CUT if view.len < BATCH_HEADER_SIZE else 0, 0)
        batch_stamp(<uint8_t *>view.buf, base_offset, leader_epoch)
    finally:
        PyBuffer_Release(&view)


# -- reading --


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class _Source:
    """The state that all records of one batch share: the bytes they point into, the header fields, the topic.

    It exports these bytes as a read-only buffer.
    """

    cdef RecordBatch batch       # owns [p, end) if the records are the stored ones
    cdef Py_buffer buffer        # owns [p, end) otherwise; obj is NULL if unused
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef batch_header header
    cdef str topic
    cdef int32_t partition

    def __dealloc__(self):
        PyBuffer_Release(&self.buffer)  # does nothing if obj is NULL

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, <void *>self.p, self.end - self.p, 1, flags)


# The source of a Record that Record.__new__ made, so that every Record has one.
cdef _Source NO_SOURCE = _Source.__new__(_Source)
NO_SOURCE.topic = ""


@cython.final
@cython.no_gc
@cython.freelist(4096)
cdef class Record:
    """Record(value=None, *, key=None, headers=(), topic='', partition=0, offset=0, timestamp=-1, \
    timestamp_type=TimestampType.CREATE_TIME, leader_epoch=-1)\n--\n
    One record: a lazy view over its batch. Immutable: a copy is the record itself. A pickled record contains a
    batch with only this record.
    """

    cdef _Source source        # keeps alive what `fields` points into
    cdef batch_record fields

    def __cinit__(self):
        self.source = NO_SOURCE

    # Cython's signature would put `key` before the star. inspect.signature reads the first lines of
    # the docstring above.
    @cython.embedsignature(False)
    def __init__(
        self,
        value=None,
        *,
        key=None,
        headers=(),
        str topic not None="",
        int32_t partition=0,
        int64_t offset=0,
        timestamp=-1,
        timestamp_type=CREATE_TIME,
        int32_t leader_epoch=-1,
    ):
        # The records of a log are made by __new__ and never run __init__.
        cdef Record made
        if self.source is not NO_SOURCE:
            raise TypeError("a Record never changes: make another one")
        data = _new_batch(value, key, headers, offset, timestamp, TimestampType(timestamp_type), leader_epoch)
        made = _read_alone(topic, partition, data)
        self.source = made.source
        self.fields = made.fields

    @property
    def topic(self):
        return self.source.topic

    @property
    def partition(self):
        return self.source.partition

    @property
    def offset(self):
        return self.source.header.base_offset + self.fields.offset_delta

    @property
    def leader_epoch(self):
        return self.source.header.leader_epoch

    @property
    def timestamp(self):
        """Milliseconds since 1970, or -1 if there is none."""
        return batch_record_timestamp(&self.source.header, self.fields.timestamp_delta)

    @property
    def timestamp_type(self):
        return _timestamp_type(&self.source.header)

    @property
    def key(self):
        """A copy of the key, or None if it is null."""
        if self.fields.key == NULL:
            return None
        return PyBytes_FromStringAndSize(<const char *>self.fields.key, self.fields.key_size)

    @property
    def value(self):
        """A copy of the value, or None if it is null."""
        if self.fields.value == NULL:
            return None
        return PyBytes_FromStringAndSize(<const char *>self.fields.value, self.fields.value_size)

    @property
    def key_view(self):
        """A view of the key, or None if it is null. Keeps the batch's bytes alive."""
        return _view(self.source, self.fields.key, self.fields.key_size)

    @property
    def value_view(self):
        """A view of the value, or None if it is null. Keeps the batch's bytes alive."""
        return _view(self.source, self.fields.value, self.fields.value_size)

    @property
    def headers(self):
        """The (key, value or None) pairs in order. U+FFFD replaces bytes of a key that are not UTF-8."""
        cdef cursor c
        cdef record_header header
        cdef list pairs
        if self.fields.header_count == 0:
            return ()
        c.p = self.fields.headers
        c.end = self.fields.headers + self.fields.headers_size
        pairs = []
        while c.p < c.end:
            check(header_read(&c, &header), c.p - self.source.p)
            key = PyUnicode_DecodeUTF8(<char *>header.key, header.key_size, "replace")
            value = None if header.value == NULL else PyBytes_FromStringAndSize(<const char *>header.value,
                                                                                header.value_size)
            pairs.append((key, value))
        return tuple(pairs)

    @property
    def delivery_count(self):
        """How many times a queue has delivered the record, this time included; 0 if it is not from a queue."""
        return self.fields.delivery_count

    def _asdict(self):
        """Return all fields by name, as a named tuple does: ``Record(**record._asdict())`` is equal to the record."""
        return {
            "value": self.value,
            "key": self.key,
            "headers": self.headers,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp,
            "timestamp_type": self.timestamp_type,
            "leader_epoch": self.leader_epoch,
        }

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        made = (self.source.topic, self.source.partition, _own_batch(self))
        return _unpickled, made if self.fields.delivery_count == 0 else (*made, self.fields.delivery_count)

    def __eq__(self, other):
        cdef Record that
        if not isinstance(other, Record):
            return NotImplemented
        that = <Record>other
        return (
            self.offset == that.offset
            and self.source.partition == that.source.partition
            and self.source.topic == that.source.topic
            and self.source.header.leader_epoch == that.source.header.leader_epoch
            and self.timestamp == that.timestamp
            and self.timestamp_type is that.timestamp_type
            and _same(self.fields.key, self.fields.key_size, that.fields.key, that.fields.key_size)
            and _same(self.fields.value, self.fields.value_size, that.fields.value, that.fields.value_size)
            and self.headers == that.headers
        )

    def __hash__(self):
        return hash((self.source.topic, self.source.partition, self.offset))

    def __repr__(self):
        count = self.fields.header_count
        headers = "()" if count == 0 else f"<{count} pair{'' if count == 1 else 's'}>"
        return (
            f"Record(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, "
            f"key={_excerpt(self.key)}, value={_excerpt(self.value)}, headers={headers})"
        )


cdef object _view(_Source source, const uint8_t *p, int32_t size):
    # Not a method: without a vtable a Record has 80 bytes, which compilers clear with five stores
    # instead of a loop.
    if p == NULL:
        return None
    start = p - source.p
    return PyMemoryView_FromObject(source)[start:start + size]


cdef inline bint _same(const uint8_t *a, int32_t a_size, const uint8_t *b, int32_t b_size) noexcept:
    return a_size == b_size and (a_size <= 0 or memcmp(a, b, <size_t>a_size) == 0)


cdef str _excerpt(data):
    return "None" if data is None else excerpt(data)


# -- records outside a log: made by a user, or unpickled. Each has a batch with only this record --


cdef bytes _new_batch(value, key, headers, int64_t offset, timestamp, timestamp_type, int32_t leader_epoch):
    """Return a batch of one record, checked and encoded as for an append."""
    from .builder import BatchBuilder  # imported late, because few programs make records

    cdef batch_header header
    cdef bytes data
    builder = BatchBuilder(INT32_MAX)
    if isinstance(timestamp, datetime):
        timestamp = record_ms(timestamp)
    if not builder.append(value, key, headers, timestamp):
        raise ValueError("a record is smaller than 2 GiB")
    if timestamp_type is NO_TIME and (leader_epoch != -1 or timestamp != -1):
        raise ValueError("timestamp_type NONE is of records older than timestamps and leader epochs: both are -1 then")
    by_log = timestamp_type is LOG_APPEND_TIME
    data = bytes(
        builder.finish(
            base_offset=offset,
            leader_epoch=leader_epoch,
            timestamp_type=1 if by_log else 0,
            append_timestamp=timestamp if by_log else -1,
        )
    )
    if timestamp_type is NO_TIME:
        check(batch_read(<const uint8_t *>PyBytes_AS_STRING(data),
              <const uint8_t *>PyBytes_AS_STRING(data) + len(data), &header), 0)
        header.attributes = <int16_t>(header.attributes | ATTRIBUTE_TIMELESS)
        batch_header_write(<uint8_t *>PyBytes_AS_STRING(data), &header)  # `data` is not shared yet
    return data


cdef bytes _own_batch(Record record):
    """Return a batch with only this record and all its fields, and with no other bytes of its source."""
    cdef const batch_record *fields = &record.fields
    cdef batch_header header = record.source.header
    cdef int64_t size = BATCH_HEADER_SIZE + record_size(
        0, 0, fields.key_size, fields.value_size, fields.header_count, fields.headers_size
    )
    cdef bytes data
    cdef uint8_t *p
    cdef uint8_t *end
    if size > INT32_MAX:
        raise ValueError(
            f"the record at offset {record.offset} is too large to be pickled: with its frame it has {size} bytes"
        )
    header.base_offset = record.offset
    header.base_timestamp = record.timestamp
    header.max_timestamp = record.timestamp
    header.producer_id = -1
    header.producer_epoch = -1
    header.base_sequence = -1
    header.size = <int32_t>size
    header.last_offset_delta = 0
    header.record_count = 1
    header.attributes = <int16_t>(header.attributes & (ATTRIBUTE_LOG_APPEND_TIME | ATTRIBUTE_TIMELESS))
    data = PyBytes_FromStringAndSize(NULL, size)
    p = <uint8_t *>PyBytes_AS_STRING(data)
    end = p + size
    p = record_write(
        p + BATCH_HEADER_SIZE, end, 0, 0,
        fields.key, fields.key_size, fields.value, fields.value_size, fields.header_count, fields.headers_size,
    )
    if fields.headers_size > 0:
        memcpy(p, fields.headers, <size_t>fields.headers_size)
    batch_header_write(<uint8_t *>PyBytes_AS_STRING(data), &header)
    return data


cdef Record _read_alone(str topic, int32_t partition, bytes data):
    """Return the record of a batch that holds one record."""
    cdef RecordBatch batch = RecordBatch(data)
    cdef list records
    if batch.header.size != len(data) or batch.header.record_count != 1:
        raise CorruptError(
            f"expected a batch of one record: {len(data)} bytes with {batch.header.record_count} records in"
            f" {batch.header.size}"
        )
    batch.check_crc()
    records = batch.records(topic=topic, partition=partition)
    return <Record>records[0]


def _unpickled(str topic not None, int32_t partition, bytes data not None, int32_t delivery_count=0):
    """Return the record of a pickle that :meth:`Record.__reduce__` made.

    The bytes are not trusted: they are checked as those of a file.
    """
    cdef Record record = _read_alone(topic, partition, data)
    record.fields.delivery_count = delivery_count  # no other code has the record yet
    return record


def chained_frame(bytes body not None, uint32_t chain):
    """chained_frame(body, chain)\n--\n
    Return (size, checksum and ``body`` as bytes, checksum). The checksum continues ``chain``, which makes a chain of
    such frames."""
    cdef size_t size = PyBytes_GET_SIZE(body)
    cdef bytes frame = PyBytes_FromStringAndSize(NULL, 8 + size)
    cdef uint8_t *p = <uint8_t *>PyBytes_AS_STRING(frame)
    store_u32(p, <uint32_t>size)
    cdef uint32_t crc = crc32c_update(chain, p, 4)
    memcpy(p + 8, PyBytes_AS_STRING(body), size)
    crc = crc32c_update(crc, p + 8, size)
    store_u32(p + 4, crc)
    return frame, crc


def delivered(list records not None, int32_t delivery_count):
    """Return ``records`` as a queue delivers them for the ``delivery_count``-th time. They share their bytes."""
    cdef Record record
    cdef Record made
    cdef list result = []
    for record in records:
        made = Record.__new__(Record)
        made.source = record.source
        made.fields = record.fields
        made.fields.delivery_count = delivery_count
        result.append(made)
    return result


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class RecordBatch:
    """RecordBatch(data, position=0)\n--\n
    One complete batch at ``position`` of ``data``, which is kept alive. Immutable. Exports its bytes as a
    read-only buffer.
    """

    cdef Py_buffer buffer       # holds the bytes that `p` points into; obj is NULL before that
    cdef const uint8_t *p
    cdef batch_header header

    def __cinit__(self, data, Py_ssize_t position=0):
        cdef Py_ssize_t size
        if position < 0:
            raise ValueError(f"position {position} is negative")
        PyObject_GetBuffer(data, &self.buffer, PyBUF_SIMPLE)
        size = self.buffer.len
        check(STATUS_CUT if position > size else 0, position)
        self.p = <const uint8_t *>self.buffer.buf + position
        check(batch_read(self.p, self.p + (size - position), &self.header), position)

    def __dealloc__(self):
        PyBuffer_Release(&self.buffer)  # does nothing if obj is NULL

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, <void *>self.p, self.header.size, 1, flags)

    @property
    def base_offset(self):
        return self.header.base_offset

    @property
    def last_offset(self):
        return batch_last_offset(&self.header)

    @property
    def next_offset(self):
        return batch_last_offset(&self.header) + 1

    @property
    def size(self):
        """The size of the batch in bytes, header included."""
        return self.header.size

    @property
    def leader_epoch(self):
        return self.header.leader_epoch

    @property
    def crc(self):
        return self.header.crc

    @property
    def attributes(self):
        return self.header.attributes

    @property
    def codec(self):
        """The codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 are unknown."""
        return self.header.attributes & ATTRIBUTE_CODEC

    @property
    def timestamp_type(self):
        return _timestamp_type(&self.header)

    @property
    def is_transactional(self):
        return self.header.attributes & ATTRIBUTE_TRANSACTIONAL != 0

    @property
    def is_control(self):
        return self.header.attributes & ATTRIBUTE_CONTROL != 0

    @property
    def delete_horizon_ms(self):
        return self.header.base_timestamp if self.header.attributes & ATTRIBUTE_DELETE_HORIZON else None

    @property
    def base_timestamp(self):
        return self.header.base_timestamp

    @property
    def max_timestamp(self):
        return self.header.max_timestamp

    @property
    def producer_id(self):
        return self.header.producer_id

    @property
    def producer_epoch(self):
        return self.header.producer_epoch

    @property
    def base_sequence(self):
        return self.header.base_sequence

    @property
    def last_sequence(self):
        """The sequence of the last record, or -1 if there is none. 0 follows INT32_MAX."""
        cdef int64_t last = <int64_t>self.header.base_sequence + self.header.last_offset_delta
        if self.header.base_sequence < 0:
            return -1
        return last if last <= INT32_MAX else last - INT32_MAX - 1

    @property
    def record_count(self):
        return self.header.record_count

    @property
    def data(self):
        """A view of the whole batch."""
        return PyMemoryView_FromObject(self)

    @property
    def payload(self):
        """A view of the records as stored (compressed if ``codec`` is not 0)."""
        return PyMemoryView_FromObject(self)[BATCH_HEADER_SIZE:]

    def place(self):
        """Return ``base_offset``, ``last_offset``, ``leader_epoch``, ``size``, ``max_timestamp``,
        ``producer_id`` and ``is_control`` in one call."""
        return (
            self.header.base_offset,
            batch_last_offset(&self.header),
            self.header.leader_epoch,
            self.header.size,
            self.header.max_timestamp,
            self.header.producer_id,
            self.header.attributes & ATTRIBUTE_CONTROL != 0,
        )

    def origin(self):
        """Return ``producer_id``, ``producer_epoch``, ``last_sequence``, last minus base offset,
        ``max_timestamp``, ``is_control`` and ``is_transactional`` in one call."""
        return (
            self.header.producer_id,
            self.header.producer_epoch,
            self.last_sequence,
            batch_last_offset(&self.header) - self.header.base_offset,
            self.header.max_timestamp,
            self.header.attributes & ATTRIBUTE_CONTROL != 0,
            self.header.attributes & ATTRIBUTE_TRANSACTIONAL != 0,
        )

    def check_crc(self):
        """Raise CorruptError if the stored CRC is not the CRC of the bytes. Releases the GIL above 5 KiB."""
        cdef int status
        if self.header.size < NOGIL_SIZE:
            status = batch_check_crc(self.p, <size_t>self.header.size)
        else:
            with nogil:
                status = batch_check_crc(self.p, <size_t>self.header.size)
        check(status, self.p - <const uint8_t *>self.buffer.buf)

    def check_records(self, payload=None):
        """Raise CorruptError unless there are ``record_count`` well-formed records with rising offset deltas, and
        no byte after them."""
        cdef int64_t max_timestamp = -1
        self._walk(payload, &max_timestamp)

    def is_dense(self, payload=None):
        """Return whether the offset deltas are 0, 1, 2, ... and the last one is ``record_count`` - 1."""
        cdef int64_t max_timestamp = -1
        return self._walk(payload, &max_timestamp) == 1

    def examine(self, payload=None):
        """Check as ``check_records`` does, and return (``is_dense``, the greatest timestamp of a record)."""
        cdef int64_t max_timestamp = -1
        dense = self._walk(payload, &max_timestamp) == 1
        return dense, max_timestamp

    def records(
        self,
        payload=None,
        *,
        str topic not None="",
        int32_t partition=-1,
        int64_t start_offset=0,
        int64_t end_offset=0x7FFFFFFFFFFFFFFF,
        int32_t record_count=-1,
    ):
        """Return the records with ``start_offset`` <= offset < ``end_offset``, in order.

        ``record_count`` is the number of records in ``payload`` if that is only a part of them.
        """
        cdef _Source source = self._source(payload)
        cdef cursor c
        cdef Record record = None
        cdef int64_t offset
        cdef int32_t previous = -1
        cdef list records = []
        source.topic = topic
        source.partition = partition
        c.p = source.p
        c.end = source.end
        for _ in range(self.header.record_count if record_count < 0 else record_count):
            if c.p == c.end:
                check(STATUS_COUNT, c.p - source.p)
            if record is None:
                record = Record.__new__(Record)
                record.source = source
            check(record_read(&c, &record.fields), c.p - source.p)
            if record.fields.offset_delta <= previous or record.fields.offset_delta > self.header.last_offset_delta:
                check(STATUS_ORDER, c.p - source.p)
            previous = record.fields.offset_delta
            offset = self.header.base_offset + previous
            if offset >= end_offset:
                return records
            if offset >= start_offset:
                records.append(record)
                record = None
        if c.p != c.end:
            check(STATUS_TRAILING, c.p - source.p)
        return records

    def whole_records(self, payload, int32_t left, int32_t previous, *, bint last):
        """Return (bytes, count, offset delta of the last) of the records that are complete in ``payload``, a part
        of the uncompressed records.

        ``left`` is the number of records of the batch from there on, ``previous`` the offset delta of the record
        before (-1: none); ``last`` says that no part follows. Raises CorruptError if a record is malformed.
        Releases the GIL.
        """
        cdef _Source source = self._source(payload)
        cdef batch_part part
        cdef int64_t position = 0
        cdef int status
        part.left = left
        part.previous = previous
        part.size = 0
        with nogil:
            status = batch_check_part(&source.header, source.p, source.end, last, &part, &position)
        check(status, position)
        return part.size, part.count, part.previous

    def find_timestamp(self, int64_t timestamp, int64_t start_offset=0, payload=None, int32_t record_count=-1):
        """Return (offset, timestamp) of the first record at or after ``start_offset`` whose timestamp is at least
        ``timestamp``, or None.

        ``record_count`` is the number of records in ``payload`` if that is only a part of them.
        """
        cdef _Source source = self._source(payload)
        if record_count >= 0:
            source.header.record_count = record_count
        cdef int64_t offset = 0
        cdef int64_t found = 0
        cdef int64_t position = 0
        cdef int status
        with nogil:
            status = batch_find_timestamp(&source.header, source.p, source.end, timestamp, start_offset, &offset,
                                          &found, &position)
        return (offset, found) if check(status, position) else None

    def __repr__(self):
        return (
            f"RecordBatch(base_offset={self.base_offset}, last_offset={self.last_offset}, "
            f"record_count={self.record_count}, "
            f"size={self.size}, leader_epoch={self.leader_epoch})"
        )

    cdef _Source _source(self, payload):
        """Return the source of the records: ``payload``, or the stored bytes if it is None."""
        cdef _Source source = _Source.__new__(_Source)
        source.header = self.header
        source.topic = ""
        source.partition = -1
        if payload is None:
            if self.header.attributes & ATTRIBUTE_CODEC:
                raise ValueError("the records are compressed: pass them decompressed as payload")
            source.batch = self
            source.p = self.p + BATCH_HEADER_SIZE
            source.end = self.p + self.header.size
        else:
            PyObject_GetBuffer(payload, &source.buffer, PyBUF_SIMPLE)
            if source.buffer.len > INT32_MAX:
                raise ValueError("a payload is smaller than 2 GiB")
            source.p = <const uint8_t *>source.buffer.buf
            source.end = source.p + source.buffer.len
        return source

    cdef int _walk(self, payload, int64_t *max_timestamp) except -1:
        """Return 1 if the records are dense, 0 if they have gaps. Raises CorruptError if one is malformed."""
        cdef _Source source = self._source(payload)
        cdef int64_t position = 0
        cdef int status
        if source.end - source.p < NOGIL_SIZE:
            status = batch_check_records(&source.header, source.p, source.end, &position, max_timestamp)
        else:
            with nogil:
                status = batch_check_records(&source.header, source.p, source.end, &position, max_timestamp)
        return check(status, position)

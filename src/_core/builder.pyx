# distutils: sources = src/_core/kernels/batch.c src/_core/kernels/crc32c.c
"""BatchBuilder encodes Python objects as the records of one batch, in memory that is reused. It makes an Ack for
each record."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_AsLongLong, PyLong_Check, PyLong_CheckExact
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from kernels cimport (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_HEADER_SIZE,
    NOGIL_SIZE,
    batch_header,
    batch_header_write,
    header_size,
    header_write,
    record_frame,
    record_frame_of,
    record_size,
    record_write,
    record_write_framed,
    record_write_value,
    subtract_wrapping,
)
from lend cimport borrow, check_lent

from pyreplog.errors import ConfigError
from pyreplog.timestamps import TIMESTAMP_MAX as _TIMESTAMP_MAX, beyond_last, record_ms


cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


cdef extern from "wall.h" nogil:
    ctypedef struct wall_clock:
        pass
    int64_t wall_ms(wall_clock *wall)


cdef enum:
    MEMORY_SIZE_FIRST = 16 * 1024  # bytes of a builder's first memory block
    POOL_COUNT_MAX = 16            # memory blocks that a builder keeps, lent out or free


@cython.final
cdef class _Memory:
    """A block of memory that exports its bytes [start, end) as a buffer.

    It neither moves nor is reused while a view of it is alive.
    """

    cdef uint8_t *p
    cdef Py_ssize_t capacity
    cdef Py_ssize_t views      # number of live views
    cdef Py_ssize_t start      # the next view shows [start, end)
    cdef Py_ssize_t end

    def __dealloc__(self):
        free(self.p)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.p + self.start, self.end - self.start, 0, flags)
        self.views += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.views -= 1

    cdef object lend(self, Py_ssize_t start, Py_ssize_t end):
        """Return a writable view of [start, end)."""
        self.start = start
        self.end = end
        return PyMemoryView_FromObject(self)


cdef _Memory _new_memory(Py_ssize_t capacity):
    cdef _Memory memory = _Memory.__new__(_Memory)
    memory.p = <uint8_t *>malloc(<size_t>capacity)
    if memory.p == NULL:
        raise MemoryError(f"no {capacity} bytes for a batch")
    memory.capacity = capacity
    return memory


cdef struct Field:
    const uint8_t *p     # a key or value, borrowed; NULL with size -1 if it is null
    Py_ssize_t size


@cython.final
@cython.no_gc
cdef class _Held:
    """The buffer of a key or value that is neither bytes nor None, held while it is copied."""

    cdef Py_buffer buffer   # obj is NULL before the buffer is borrowed

    def __dealloc__(self):
        PyBuffer_Release(&self.buffer)


cdef inline _Held _hold(object data, str what):
    """Return the holder of the bytes of ``data``. ``bytes`` and None need no holder: return None."""
    if data is None or PyBytes_Check(data):
        return None
    return _hold_buffer(data, what)


cdef _Held _hold_buffer(object data, str what):
    cdef _Held held = _Held.__new__(_Held)
    borrow(data, what, &held.buffer)
    return held


cdef inline Field _field(object data, _Held held) noexcept:
    """Return the bytes of ``data``, which ``held`` holds unless it is None."""
    if held is not None:
        return Field(<const uint8_t *>held.buffer.buf, held.buffer.len)
    if data is None:
        return Field(NULL, -1)
    return Field(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef tuple _normal_headers(headers):
    """Return ``headers`` as a tuple of (str, bytes or None) tuples. If it is one, return it unchanged."""
    cdef list pairs
    cdef tuple given = headers if type(headers) is tuple else _pairs_of(headers)
    for pair in given:
        if type(pair) is not tuple or len(<tuple>pair) != 2 or type((<tuple>pair)[0]) is not str:
            break
        value = (<tuple>pair)[1]
        if value is not None and type(value) is not bytes:
            break
    else:
        return given
    pairs = []
    for pair in given:
        if isinstance(pair, (str, bytes)):
            raise TypeError("headers are (key, value) pairs, such as [('source', b'web')]")
        try:
            key, value = pair
        except (TypeError, ValueError):
            raise TypeError("headers are (key, value) pairs, such as [('source', b'web')]") from None
        if not isinstance(key, str):
            raise TypeError(f"a header key is a str, not {type(key).__name__}")
        if value is not None and not isinstance(value, bytes):
            value = _header_value(value)
        pairs.append((key, value))
    return tuple(pairs)


cdef object _header_value(object value):
    """Return a copy of a header's value as bytes; its buffer need not be contiguous. None for an Arrow null."""
    cdef Py_buffer view
    if type(value) is memoryview and not value.contiguous:
        check_lent(value, "header value", PyMemoryView_GET_BUFFER(value).format, 1)
        return bytes(value)
    borrow(value, "header value", &view)
    if view.buf == NULL and view.len < 0:
        return None
    try:
        return PyBytes_FromStringAndSize(<const char *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef tuple _pairs_of(object headers):
    """Return headers of another type, such as a dict, as a tuple. None means no headers.

    An iterator is a TypeError: if the batch is full, the headers are read again for the next batch.
    """
    cdef object pairs
    if headers is None:
        return ()
    if hasattr(headers, "items"):
        headers = headers.items()
    pairs = _each(headers, "headers are (key, value) pairs")
    if pairs is headers:
        raise TypeError(
            "headers are (key, value) pairs in something that can be read again, such as a list, not a"
            f" {type(headers).__name__}"
        )
    return tuple(pairs)


cdef object _each(object items, str wanted):
    """Return an iterator over ``items``, or raise TypeError, which says what is ``wanted``."""
    if isinstance(items, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"{wanted}, not one {type(items).__name__}")
    try:
        return iter(items)
    except TypeError:
        raise TypeError(f"{wanted}, not {type(items).__name__}") from None


cdef int64_t _headers_size(tuple headers) except -1:
    """Return the encoded size of normal headers in bytes, without their count."""
    cdef int64_t size = 0
    cdef Py_ssize_t key_size
    for pair in headers:
        try:
            PyUnicode_AsUTF8AndSize((<tuple>pair)[0], &key_size)
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"a header key is text that UTF-8 can hold, and {(<tuple>pair)[0]!a} has half of a surrogate pair at"
                f" {error.start}: "
                "take it out, or write it otherwise"
            ) from None
        value = (<tuple>pair)[1]
        size += header_size(key_size, -1 if value is None else PyBytes_GET_SIZE(value))
    return size


cdef uint8_t *_write_headers(uint8_t *p, const uint8_t *end, tuple headers) except NULL:
    """Write normal headers and return the end of them. REQUIRES room for their size."""
    cdef const char *key
    cdef Py_ssize_t key_size
    for pair in headers:
        key = PyUnicode_AsUTF8AndSize((<tuple>pair)[0], &key_size)
        value = (<tuple>pair)[1]
        if value is None:
            p = header_write(p, end, <const uint8_t *>key, key_size, NULL, -1)
        else:
            p = header_write(p, end, <const uint8_t *>key, key_size, <const uint8_t *>PyBytes_AS_STRING(value),
                             PyBytes_GET_SIZE(value))
        if p == NULL:
            raise MemoryError("headers grew while they were written")
    return p


cdef object _whole(object given):
    try:
        return record_ms(given)
    except TypeError:
        raise TypeError(
            "a timestamp is a datetime with a time zone, or an int, in ms since 1970, not"
            f" {type(given).__name__}: int(1000 * time.time())"
        ) from None


cdef inline int64_t _timestamp(object given, int64_t latest) except? -2:
    """Return ``given``, an int or datetime, in ms.

    A float is a TypeError because it usually means seconds, and its fraction would be lost; a bool is one
    because it is a mistake. A time after ``latest`` is an InvalidTimestampError.
    """
    cdef int64_t timestamp
    try:
        timestamp = PyLong_AsLongLong(given if PyLong_CheckExact(given) else _whole(given))
    except OverflowError:
        if given > 0:
            raise beyond_last(given) from None
        raise ConfigError(f"timestamp {given} does not fit 64 bits: it counts ms since 1970") from None
    if timestamp < -1:
        raise ConfigError(f"timestamp {timestamp} is below -1: it counts ms since 1970, and -1 means none")
    if timestamp > latest:
        raise beyond_last(timestamp)
    return timestamp


cdef object _as_list(sequence, Py_ssize_t count, str what):
    """Return ``sequence`` as a list of ``count`` items. A list is returned unchanged, and so is None."""
    if sequence is None:
        return None
    items = sequence if type(sequence) is list else list(_each(sequence, f"{what} are a list, with one for each value"))
    if len(items) != count:
        raise ConfigError(f"{len(items)} {what} for {count} values: give one for each")
    return items


cdef int64_t LATEST = _TIMESTAMP_MAX


def find_too_large(values, keys, headers, timestamps, Py_ssize_t size_max):
    """Return the index of the first record that does not fit a batch of ``size_max`` bytes, or the number of
    records if each fits."""
    cdef list value_list = values if type(values) is list else list(values)
    cdef Py_ssize_t count = PyList_GET_SIZE(value_list)
    cdef list key_list = _as_list(keys, count, "keys")
    cdef list header_list = _as_list(headers, count, "headers")
    cdef list timestamp_list = _as_list(timestamps, count, "timestamps")
    cdef bint is_plain = key_list is None and header_list is None and timestamp_list is None
    cdef _Held value_held
    cdef _Held key_held
    cdef tuple pairs
    cdef int64_t headers_size
    cdef int64_t size
    cdef Py_ssize_t i
    for i in range(count):
        value = value_list[i]
        if is_plain and PyBytes_Check(value):
            if BATCH_HEADER_SIZE + record_size(0, 0, -1, PyBytes_GET_SIZE(value), 0, 0) > size_max:
                return i
            continue
        key = None if key_list is None else key_list[i]
        value_held = _hold(value, "value")
        key_held = _hold(key, "key")
        pairs = () if header_list is None else _normal_headers(header_list[i])
        if timestamp_list is not None:
            _timestamp(timestamp_list[i], LATEST)
        headers_size = _headers_size(pairs)
        size = record_size(
            0, 0, _field(key, key_held).size, _field(value, value_held).size,
            <int32_t>len(pairs) if headers_size <= INT32_MAX else 0, headers_size,
        )
        if BATCH_HEADER_SIZE + size > size_max:
            return i
    return count


@cython.final
@cython.no_gc  # no reference of an outcome leads back to an Ack
@cython.freelist(1024)
cdef class Ack:
    """The acknowledgement of one record, to wait for. Thread-safe: it is immutable, and its outcome has a lock."""

    cdef object _outcome
    cdef Py_ssize_t _index

    def __init__(self, outcome not None, Py_ssize_t index):
        self._outcome = outcome
        self._index = index

    def result(self, timeout=None):
        """Wait and return the record's metadata. Raises the error of the record, or TimeoutError after ``timeout``
        seconds."""
        self._outcome.wait(timeout)
        return self._metadata()

    def done(self):
        """Return whether the record is acknowledged or refused. Never waits."""
        return self._outcome.settled

    def exception(self, timeout=None):
        """Wait and return the error of the record, or None."""
        self._outcome.wait(timeout)
        return self._error()

    @property
    def offset(self):
        """The record's offset if it is known, else None. Never waits."""
        if not self._outcome.settled or self._outcome.error is not None:
            return None
        return self._outcome.metadata(self._index).offset

    def __await__(self):
        """Wait as :meth:`result` does without a timeout, for coroutines."""
        if not self._outcome.settled:
            yield from self._outcome.future().__await__()
        return self._metadata()

    def __repr__(self):
        if not self._outcome.settled:
            return "<pyreplog.Ack pending>"
        error = self._outcome.error
        return f"<pyreplog.Ack offset={self.offset}>" if error is None else f"<pyreplog.Ack failed: {error!r}>"

    cdef object _error(self):
        """Return the error for the caller, and note that it was reported: ``close`` need not report it again."""
        error = self._outcome.error
        if error is not None:
            self._outcome.asked = True
        return error

    cdef object _metadata(self):
        error = self._error()
        if error is not None:
            raise error
        return self._outcome.metadata(self._index)


@cython.final
cdef class BatchBuilder:
    """Encodes records into one batch, in memory that is reused. Belongs to one thread at a time."""

    cdef _Memory memory              # [0, used) is the batch: room for the header, then records
    cdef list pool                   # memory blocks of this builder, including `memory`
    cdef Py_ssize_t size_max         # bytes of a batch with one record
    cdef Py_ssize_t size_target      # bytes of a batch with several records
    cdef Py_ssize_t used
    cdef int32_t record_count
    cdef int64_t base_timestamp
    cdef int64_t max_timestamp
    cdef bint finished
    cdef bint busy                   # inside `extend` or `finish`, which may run Python code
    cdef object outcome              # outcome of the batch for `gather`; None: not begun
    cdef list timestamps             # timestamps of its records
    cdef Py_ssize_t stamps_before    # their number before its first record
    cdef Py_ssize_t size_limit       # bytes at which `gather` calls the batch full
    cdef wall_clock wall
    # The last time that `gather` read, also as an object, because many records share a millisecond.
    cdef int64_t stamp_ms
    cdef object stamp
    cdef int64_t timestamp_max       # latest timestamp that a record may bring

    def __cinit__(self, Py_ssize_t size_max=1048588, size_target=None, *, int64_t timestamp_max=INT64_MAX):
        if not BATCH_HEADER_SIZE < size_max <= INT32_MAX:
            raise ValueError(f"size_max {size_max} is not within {BATCH_HEADER_SIZE + 1} and {INT32_MAX}")
        self.size_max = size_max
        self.size_target = size_max if size_target is None else size_target
        if not 0 <= self.size_target <= size_max:
            raise ValueError(f"size_target {size_target} is not within 0 and size_max, {size_max}")
        self.memory = _new_memory(min(size_max, MEMORY_SIZE_FIRST))
        self.pool = [self.memory]
        self.stamp_ms = -1
        self.timestamp_max = timestamp_max
        self._begin()

    @property
    def count(self):
        """The number of records so far."""
        return self.record_count

    @property
    def size(self):
        """The size of the uncompressed batch in bytes, header included."""
        return self.used

    def append(self, value, key, headers, timestamp):
        """Add one record. Return False if it does not fit; then nothing has changed."""
        cdef int64_t given = _timestamp(timestamp, self.timestamp_max)
        cdef _Held value_held = _hold(value, "value")
        cdef _Held key_held = _hold(key, "key")
        cdef tuple pairs = _normal_headers(headers)
        # Checked after the calls above, because they may run Python code that finishes the batch.
        self._check_open()
        return self._put(_field(value, value_held), _field(key, key_held), pairs, given) == 1

    def begin(self, outcome not None, list timestamps not None, Py_ssize_t size_limit):
        """Begin the next batch, for ``gather``. Its records belong to ``outcome``; their timestamps are appended
        to ``timestamps``.

        A record that would make it longer than ``size_limit`` bytes is not taken, unless it is the first.
        """
        self.reset()
        self.size_limit = size_limit
        self.timestamps = timestamps
        self.stamps_before = PyList_GET_SIZE(timestamps)
        self.outcome = outcome

    def resume(self, outcome not None, list timestamps not None, size_limit):
        """Have ``gather`` add records to the present batch, until it is finished or reset. The arguments are those of
        :meth:`begin`; ``timestamps`` has one for each record so far. If that ever differs, ``gather`` takes none."""
        self._check_open()
        self.size_limit = size_limit
        self.timestamps = timestamps
        self.stamps_before = PyList_GET_SIZE(timestamps) - self.record_count
        self.outcome = outcome

    def gather(self, value, key, headers, timestamp, now_ms=None):
        """Add one record and return its Ack, or None if the batch is full or not begun; then nothing has changed.

        If ``timestamp`` is None, use ``now_ms()``, or this machine's clock if ``now_ms`` is None too.
        """
        return self._gather(value, key, headers, timestamp, now_ms)

    cdef object _gather(self, object value, object key, object headers, object timestamp, object now_ms):
        cdef _Held value_held = _hold(value, "value")
        cdef _Held key_held = _hold(key, "key")
        cdef tuple pairs = _normal_headers(headers)
        cdef Ack ack
        cdef object outcome
        cdef uint8_t *behind
        cdef int64_t given
        if timestamp is None and now_ms is None:
            given = self._read_clock()
            timestamp = self.stamp
        else:
            if timestamp is None:
                timestamp = now_ms()
            given = _timestamp(timestamp, self.timestamp_max)
            if not PyLong_Check(timestamp):
                timestamp = given
        ack = Ack.__new__(Ack)
        # The calls above may run Python code, and so other threads. No statement below runs Python
        # code or releases the GIL, so outcome, record, index and timestamp belong together without
        # a lock. Each allocation comes before the record is counted.
        outcome = self.outcome
        if outcome is None:
            return None
        if self.busy:
            raise self._refuse_inside()
        if PyList_GET_SIZE(self.timestamps) - self.stamps_before != self.record_count:
            return None
        behind = self._write(_field(value, value_held), _field(key, key_held), pairs, given)
        if behind == NULL or (behind - self.memory.p > self.size_limit and self.record_count > 0):
            return None
        self.timestamps.append(timestamp)
        ack._outcome = outcome
        ack._index = self.record_count
        self._count(behind, given)
        return ack

    cdef Ack _gather_value(self, bytes value):
        """Do as :meth:`_gather` for the most common record: only a value, with the time of this machine's clock.

        Return None if it was not taken; :meth:`_gather` may take it.
        """
        cdef Ack ack = Ack.__new__(Ack)  # allocated first, as above
        cdef int64_t now = self._read_clock()
        cdef object outcome = self.outcome
        cdef uint8_t *p = self.memory.p
        cdef uint8_t *behind
        if outcome is None or self.record_count == 0 or self.busy:
            return None
        if PyList_GET_SIZE(self.timestamps) - self.stamps_before != self.record_count:
            return None
        behind = record_write_value(
            p + self.used, p + min(min(self.memory.capacity, self.size_target),
                                   self.size_limit), subtract_wrapping(now, self.base_timestamp),
            self.record_count, <const uint8_t *>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
        )
        if behind == NULL:
            return None
        self.timestamps.append(self.stamp)  # may raise MemoryError, so before the record is counted
        ack._outcome = outcome
        ack._index = self.record_count
        self.used = behind - p
        self.record_count += 1
        if now > self.max_timestamp:
            self.max_timestamp = now
        return ack

    cdef inline int64_t _read_clock(self) except? -1:
        """Return the time in ms. ``stamp`` is the same as an object, made once per millisecond."""
        cdef int64_t given = wall_ms(&self.wall)
        if given != self.stamp_ms:
            self.stamp = given
            self.stamp_ms = given
        return given

    def extend(self, values, keys, headers, timestamps, timestamp, Py_ssize_t start):
        """Add ``values[start:]`` until one does not fit, and return the index of the first that was not taken.

        If it raises, no record is added.
        """
        cdef list value_list = values if type(values) is list else list(values)
        cdef Py_ssize_t count = PyList_GET_SIZE(value_list)
        cdef list key_list = _as_list(keys, count, "keys")
        cdef list header_list = _as_list(headers, count, "headers")
        cdef list timestamp_list = _as_list(timestamps, count, "timestamps")
        cdef int64_t given = _timestamp(timestamp, self.timestamp_max)
        cdef Py_ssize_t used
        cdef int32_t record_count
        cdef int64_t base_timestamp
        cdef int64_t max_timestamp
        cdef Py_ssize_t i
        self._check_open()
        if start < 0:
            raise ValueError(f"start {start} is negative")
        used = self.used
        record_count = self.record_count
        base_timestamp = self.base_timestamp
        max_timestamp = self.max_timestamp
        # Headers and buffers may run Python code, which must not use this builder during the call.
        self.busy = True
        try:
            if key_list is None and header_list is None and timestamp_list is None:
                i = start
                while i < count:
                    if self._add(value_list[i], None, None, given) == 0:
                        return i
                    i = self._add_plain_values(value_list, i + 1, given)
            else:
                for i in range(start, count):
                    if timestamp_list is not None:
                        given = _timestamp(timestamp_list[i], self.timestamp_max)
                    if self._add(
                        value_list[i],
                        None if key_list is None else key_list[i],
                        None if header_list is None else header_list[i],
                        given,
                    ) == 0:
                        return i
        except BaseException:
            self.used = used
            self.record_count = record_count
            self.base_timestamp = base_timestamp
            self.max_timestamp = max_timestamp
            raise
        finally:
            self.busy = False
        return count

    def finish(
        self,
        *,
        int64_t base_offset=0,
        int32_t leader_epoch=-1,
        int codec=0,
        payload=None,
        int timestamp_type=0,
        int64_t append_timestamp=-1,
        int64_t producer_id=-1,
        int16_t producer_epoch=-1,
        int32_t base_sequence=-1,
        bint transactional=False,
        bint control=False,
    ):
        """Return the whole batch as a writable view, which keeps its memory valid. REQUIRES ``count`` > 0."""
        cdef batch_header header
        cdef uint8_t *p
        self._check_open()
        if self.record_count == 0:
            raise ValueError("a batch holds at least one record")
        if base_offset < 0:
            raise ValueError(f"base_offset {base_offset} is negative")
        if not 0 <= codec <= 4:
            raise ValueError(f"codec {codec} is not within 0 and 4")
        if (codec == 0) != (payload is None):
            raise ValueError("a codec and its payload come together")
        if timestamp_type not in (0, 1):
            raise ValueError(f"timestamp_type {timestamp_type} is neither 0 (create) nor 1 (log append)")
        if producer_id == -1 and transactional:
            raise ValueError("a transactional batch needs a producer_id")
        if producer_id != -1 and (producer_epoch < 0 or (base_sequence < 0 and not control)):
            raise ValueError("a producer_id needs a producer_epoch and a base_sequence")
        if payload is not None:
            self.busy = True  # its buffer may run Python code
            try:
                self._replace_payload(payload)
            finally:
                self.busy = False
        self.finished = True  # no thread can add records, not even while the GIL is released below
        self.outcome = None
        header.base_offset = base_offset
        header.base_timestamp = self.base_timestamp
        header.max_timestamp = append_timestamp if timestamp_type == 1 else self.max_timestamp
        header.producer_id = producer_id
        header.size = <int32_t>self.used
        header.leader_epoch = leader_epoch
        header.last_offset_delta = self.record_count - 1
        header.base_sequence = base_sequence
        header.record_count = self.record_count
        header.attributes = <int16_t>(
            codec
            | (ATTRIBUTE_LOG_APPEND_TIME if timestamp_type == 1 else 0)
            | (ATTRIBUTE_TRANSACTIONAL if transactional else 0)
            | (ATTRIBUTE_CONTROL if control else 0)
        )
        header.producer_epoch = producer_epoch
        p = self.memory.p
        if self.used < NOGIL_SIZE:
            batch_header_write(p, &header)
        else:
            with nogil:
                batch_header_write(p, &header)
        return self.memory.lend(0, self.used)

    def payload(self):
        """Return a view of the uncompressed records so far, for a codec. Release it before the next call."""
        self._check_open()
        return self.memory.lend(BATCH_HEADER_SIZE, self.used)

    def reset(self):
        """Begin the next batch, in memory that has no live view."""
        cdef _Memory memory
        if self.busy:
            raise self._refuse_inside()
        if self.memory.views:
            for memory in self.pool:
                if memory.views == 0:
                    self.memory = memory
                    break
            else:
                self._use_new_memory(self.memory.capacity)
        self.outcome = None
        self._begin()

    cdef void _begin(self) noexcept:
        self.used = BATCH_HEADER_SIZE
        self.record_count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1
        self.finished = False

    cdef object _refuse_inside(self):
        return RuntimeError(
            "a BatchBuilder is inside another call: an argument of that call, such as headers, must not call it"
        )

    cdef inline int _check_open(self) except -1:
        if self.busy:
            raise self._refuse_inside()
        if self.finished:
            raise ValueError("the batch is finished: reset() begins the next one")
        return 0

    cdef int _use_new_memory(self, Py_ssize_t capacity) except -1:
        cdef _Memory memory = _new_memory(capacity)
        self.pool.append(memory)  # may raise MemoryError too, so before any change
        if len(self.pool) > POOL_COUNT_MAX:
            del self.pool[0]  # it is freed when its last view is gone
        self.memory = memory
        return 0

    cdef int _reserve(self, Py_ssize_t size, Py_ssize_t keep) except -1:
        """Make room for ``size`` bytes in all, and keep the first ``keep`` of them."""
        cdef _Memory memory = self.memory
        cdef Py_ssize_t capacity = max(size, min(2 * memory.capacity, self.size_max))
        cdef uint8_t *p
        if size <= memory.capacity and memory.views == 0:
            return 0
        if memory.views:
            self._use_new_memory(max(capacity, memory.capacity))
            memcpy(self.memory.p, memory.p, <size_t>keep)
            return 0
        p = <uint8_t *>realloc(memory.p, <size_t>capacity)
        if p == NULL:
            raise MemoryError(f"no {capacity} bytes for a batch")
        memory.p = p
        memory.capacity = capacity
        return 0

    cdef int _replace_payload(self, payload) except -1:
        cdef Py_buffer view
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            if view.len > INT32_MAX - BATCH_HEADER_SIZE:
                raise ValueError("a payload is smaller than 2 GiB")
            self._reserve(BATCH_HEADER_SIZE + view.len, BATCH_HEADER_SIZE)
            memcpy(self.memory.p + BATCH_HEADER_SIZE, view.buf, <size_t>view.len)
            self.used = BATCH_HEADER_SIZE + view.len
        finally:
            PyBuffer_Release(&view)
        return 0

    cdef Py_ssize_t _add_plain_values(self, list values, Py_ssize_t i, int64_t timestamp) noexcept:
        """Add ``values[i:]`` as long as they are bytes and fit the present memory. Return the index of the first
        that was not taken.

        The most common case, so the loop runs no Python code; therefore the list cannot change either. REQUIRES
        that the batch has a record.
        """
        cdef Py_ssize_t count = PyList_GET_SIZE(values)
        cdef const uint8_t *end = self.memory.p + min(self.memory.capacity, self.size_target)
        cdef uint8_t *p = self.memory.p + self.used
        cdef uint8_t *behind
        cdef record_frame frame = record_frame_of(subtract_wrapping(timestamp, self.base_timestamp))
        cdef int32_t record_count = self.record_count
        cdef PyObject *value
        while i < count:
            value = PyList_GET_ITEM(values, i)
            if not PyBytes_Check(<object>value):
                break
            behind = record_write_framed(
                &frame, p, end, record_count,
                <const uint8_t *>PyBytes_AS_STRING(<object>value), PyBytes_GET_SIZE(<object>value)
            )
            if behind == NULL:
                break
            p = behind
            record_count += 1
            i += 1
        if record_count > self.record_count and timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.used = p - self.memory.p
        self.record_count = record_count
        return i

    cdef inline int _add(self, object value, object key, object headers, int64_t timestamp) except -1:
        """Add a record. Return 1, or 0 if it does not fit."""
        cdef _Held value_held = _hold(value, "value")
        cdef _Held key_held = _hold(key, "key")
        cdef tuple pairs = _normal_headers(headers)
        return self._put(_field(value, value_held), _field(key, key_held), pairs, timestamp)

    cdef int _put(self, Field value, Field key, tuple headers, int64_t timestamp) except -1:
        """Add a record with normal headers. Return 1, or 0 if it does not fit; then nothing has changed.

        Runs no Python code.
        """
        cdef uint8_t *behind = self._write(value, key, headers, timestamp)
        if behind == NULL:
            return 0
        self._count(behind, timestamp)
        return 1

    cdef uint8_t *_write(self, Field value, Field key, tuple headers, int64_t timestamp) except? NULL:
        """Write a record after the last one without counting it. Return its end, or NULL if it does not fit.

        Runs no Python code.
        """
        cdef int64_t headers_size = _headers_size(headers) if len(headers) > 0 else 0
        cdef int32_t header_count = <int32_t>len(headers) if headers_size <= INT32_MAX else 0
        cdef Py_ssize_t size_max = self.size_max if self.record_count == 0 else self.size_target
        cdef int64_t size
        cdef int64_t delta
        cdef uint8_t *p
        delta = 0 if self.record_count == 0 else subtract_wrapping(timestamp, self.base_timestamp)
        p = self.memory.p
        p = record_write(
            p + self.used, p + min(self.memory.capacity, size_max), delta, self.record_count,
            key.p, key.size, value.p, value.size, header_count, headers_size,
        )
        if p == NULL:
            size = self.used + record_size(delta, self.record_count, key.size, value.size, header_count, headers_size)
            if size > size_max:
                return NULL
            self._reserve(size, self.used)
            p = self.memory.p
            p = record_write(
                p + self.used, p + self.memory.capacity, delta, self.record_count,
                key.p, key.size, value.p, value.size, header_count, headers_size,
            )
        if header_count:
            p = _write_headers(p, self.memory.p + self.memory.capacity, headers)
        return p

    cdef inline void _count(self, uint8_t *behind, int64_t timestamp) noexcept:
        """Count the record that was written up to ``behind``."""
        self.used = behind - self.memory.p
        if self.record_count == 0:
            self.base_timestamp = timestamp
            self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.record_count += 1


@cython.final
cdef class Gathering:
    """Adds records to ``builder``, one call each, and calls ``otherwise`` for a record that it does not take."""

    cdef BatchBuilder builder
    cdef object now_ms
    cdef object otherwise

    def __cinit__(self, BatchBuilder builder not None, now_ms, otherwise not None):
        self.builder = builder
        self.now_ms = now_ms
        self.otherwise = otherwise

    def append(self, value, *, key=None, headers=(), timestamp=None):
        """Add a record with :meth:`BatchBuilder.gather` and return its Ack. If it is not taken, return
        ``otherwise(value, key, headers, timestamp)``."""
        cdef object ack = None
        if (type(value) is bytes and key is None and type(headers) is tuple and len(<tuple>headers) == 0
                and timestamp is None and self.now_ms is None):
            ack = self.builder._gather_value(<bytes>value)
        if ack is None:
            ack = self.builder._gather(value, key, headers, timestamp, self.now_ms)
        return self.otherwise(value, key, headers, timestamp) if ack is None else ack

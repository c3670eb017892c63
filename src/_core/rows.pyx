# distutils: sources = src/_core/kernels/rows.c src/_core/kernels/batch.c src/_core/kernels/crc32c.c
"""RowEncoder encodes rows of Arrow arrays as record batches, with one open batch for each partition. columns.pyx
does the reverse."""

cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_Release
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset, strcmp, strncmp

from foreign cimport check_array, check_buffer, check_items, check_root, check_schema, malformed, name_of, taken_already
from kernels cimport (
    BATCH_HEADER_SIZE,
    STATUS_ABSURD,
    STATUS_HEADER_KEY,
    STATUS_LENGTH,
    STATUS_RANGE,
    STATUS_UTF8,
    arrow_array,
    arrow_schema,
    batch_header,
    batch_header_write,
    i32_at,
    i64_at,
    murmur2 as murmur2_of,
    rows,
    rows_append,
    rows_batch,
    rows_binary,
    rows_fixed,
    rows_group,
    rows_place,
    xxh64 as xxh64_of,
)
from lend cimport borrow

from pyreplog.errors import InternalError, InvalidRequestError, MessageTooLargeError
from pyreplog.timestamps import beyond_last

cdef enum:
    MEMORY_SIZE_FIRST = 16 * 1024  # bytes of a partition's first memory block


def murmur2(key):
    """Return Kafka's 32-bit hash of ``key``, unsigned."""
    cdef Py_buffer view
    borrow(key, "key", &view)
    if view.len < 0:
        raise TypeError("a key that is null has no hash")
    try:
        return murmur2_of(<const uint8_t *>view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)


def xxh64(data, uint64_t seed=0):
    """Return the 64-bit hash XXH64 of ``data``."""
    cdef Py_buffer view
    borrow(data, "data", &view)
    if view.len < 0:
        raise TypeError("None has no hash")
    try:
        return xxh64_of(<const uint8_t *>view.buf, <size_t>view.len, seed)
    finally:
        PyBuffer_Release(&view)


cdef int _read_binary(rows_binary *out, arrow_schema *schema, arrow_array *array, arrow_array *parent) except -1:
    """Read a column of bytes or text. ``out`` borrows from ``array``."""
    if (strcmp(schema.format, b"z") != 0 and strcmp(schema.format, b"u") != 0) or schema.dictionary != NULL:
        code = schema.format.decode("utf-8", "replace")
        raise TypeError(f"column {_name(schema)} is {code!r} in Arrow's terms; it must be binary or string")
    check_array(array, schema, parent, 3)
    check_buffer(array, schema, 1)
    out.validity = <const uint8_t *>array.buffers[0]
    out.offsets = array.buffers[1]
    out.data = <const uint8_t *>array.buffers[2]
    if array.length > 0:
        out.data_size = i32_at(out.offsets, array.offset + array.length)
    out.first = parent.offset + array.offset
    return 0


cdef int _read_fixed(rows_fixed *out, arrow_schema *schema, arrow_array *array, arrow_array *parent) except -1:
    check_array(array, schema, parent, 2)
    check_buffer(array, schema, 1)
    out.validity = <const uint8_t *>array.buffers[0]
    out.values = array.buffers[1]
    out.first = parent.offset + array.offset
    return 0


cdef int _read_headers(rows *out, arrow_schema *schema, arrow_array *array, arrow_array *parent) except -1:
    cdef arrow_schema *item
    cdef arrow_array *items
    cdef int i
    cdef int key = -1
    check_schema(schema)
    if strcmp(schema.format, b"+l") == 0 and schema.n_children != 1:
        raise malformed(schema, f"it has {schema.n_children} children where a list has one")
    if strcmp(schema.format, b"+l") != 0 or schema.dictionary != NULL or strcmp(schema.children[0].format, b"+s") != 0:
        raise TypeError("column headers must be a list of structs of key and value")
    item = schema.children[0]
    check_schema(item)
    if item.dictionary == NULL and item.n_children == 2:
        for i in range(2):
            if strcmp(name_of(item.children[i]), b"key") == 0 and strcmp(name_of(item.children[1 - i]), b"value") == 0:
                key = i
    if key < 0:
        raise TypeError("a header must be a struct of key and value")
    items = check_items(array, schema, parent)
    out.headers.validity = <const uint8_t *>array.buffers[0]
    out.headers.offsets = array.buffers[1]
    out.headers.first = parent.offset + array.offset
    out.header.validity = <const uint8_t *>items.buffers[0]
    out.header.first = items.offset
    out.header_count = items.length
    _read_binary(&out.header_key, item.children[key], items.children[key], items)
    _read_binary(&out.header_value, item.children[1 - key], items.children[1 - key], items)
    return 0


cdef str _name(arrow_schema *schema):
    return name_of(schema).decode("utf-8", "replace")


cdef int _read(rows *out, arrow_schema *schema, arrow_array *array) except -1:
    """Find the columns of a record batch by their names. Nothing is copied: ``out`` borrows from ``array``."""
    cdef arrow_schema *kind
    cdef arrow_array *column
    cdef int64_t i
    memset(out, 0, sizeof(rows))
    check_schema(schema)
    if strcmp(schema.format, b"+s") != 0 or schema.dictionary != NULL:
        raise TypeError("rows come as a record batch")
    check_root(array, schema)
    for i in range(schema.n_children):
        kind = schema.children[i]
        column = array.children[i]
        name = _name(kind)
        if name == "key":
            _read_binary(&out.key, kind, column, array)
        elif name == "value":
            _read_binary(&out.value, kind, column, array)
        elif name == "headers":
            _read_headers(out, kind, column, array)
        elif name == "timestamp":
            if strncmp(kind.format, b"tsu:", 4) != 0 or kind.dictionary != NULL:
                raise TypeError("column timestamp must be timestamp[us]")
            _read_fixed(&out.timestamp, kind, column, array)
        elif name == "partition":
            if strcmp(kind.format, b"i") != 0 or kind.dictionary != NULL:
                raise TypeError("column partition must be int32")
            _read_fixed(&out.partition, kind, column, array)
        else:
            raise TypeError(f"column {name} is none of key, value, headers, timestamp, partition")
    return 0


@cython.final
cdef class RowEncoder:
    """Encodes rows of Arrow arrays as record batches. Belongs to one thread."""

    cdef rows_batch *batches       # one per partition; `p` is NULL before its first record
    cdef readonly int32_t partition_count
    cdef readonly int64_t size     # bytes of the records in open batches
    cdef int64_t size_target       # bytes at which a batch is full
    cdef int64_t size_max          # bytes of a batch with one record

    def __cinit__(self, int32_t partition_count, int64_t size_target=262144, int64_t size_max=1048588, uint64_t seed=0):
        cdef int32_t i
        if partition_count < 1:
            raise ValueError(f"partition_count {partition_count} is below 1")
        if not BATCH_HEADER_SIZE < size_target <= size_max <= INT32_MAX:
            raise ValueError(
                f"size_target {size_target} and size_max {size_max} are not within {BATCH_HEADER_SIZE + 1} and"
                f" {INT32_MAX}"
            )
        self.partition_count = partition_count
        self.size_target = size_target
        self.size_max = size_max
        self.batches = <rows_batch *>calloc(<size_t>partition_count, sizeof(rows_batch))
        if self.batches == NULL:
            raise MemoryError()
        for i in range(partition_count):
            self.batches[i].seed = seed

    def __dealloc__(self):
        cdef int32_t i
        if self.batches != NULL:
            for i in range(self.partition_count):
                free(self.batches[i].p)
        free(self.batches)

    def add(self, array, int64_t timestamp, int32_t keyless):
        """Add all rows of a record batch. Return (partition, batch) of each batch that became full."""
        cdef arrow_schema *schema
        cdef arrow_array *given
        cdef arrow_array moved
        cdef list full = []
        if not 0 <= keyless < self.partition_count:
            raise ValueError(f"partition {keyless} is not within 0 and {self.partition_count - 1}")
        schema_capsule, array_capsule = array.__arrow_c_array__()
        schema = <arrow_schema *>PyCapsule_GetPointer(schema_capsule, b"arrow_schema")
        given = <arrow_array *>PyCapsule_GetPointer(array_capsule, b"arrow_array")
        if schema.release == NULL or given.release == NULL:
            raise taken_already("Arrow array")
        # Moved out of the capsule, so that no other consumer can release it during the read.
        moved = given[0]
        given.release = NULL
        try:
            self._add_all(schema, &moved, timestamp, keyless, full)
        finally:
            with nogil:
                moved.release(&moved)
        return full

    cdef int _add_all(self, arrow_schema *schema, arrow_array *array, int64_t timestamp, int32_t keyless,
                      list full) except -1:
        cdef rows columns
        cdef int64_t count, bad
        cdef int32_t *partitions = NULL
        cdef int32_t *order = NULL
        cdef int64_t *starts = NULL
        cdef int32_t asked
        _read(&columns, schema, array)
        count = array.length
        if count > INT32_MAX:
            raise ValueError(f"{count} rows at once")
        if count == 0:
            return 0
        try:
            partitions = <int32_t *>malloc(<size_t>count * sizeof(int32_t))
            order = <int32_t *>malloc(<size_t>count * sizeof(int32_t))
            starts = <int64_t *>malloc((<size_t>self.partition_count + 1) * sizeof(int64_t))
            if partitions == NULL or order == NULL or starts == NULL:
                raise MemoryError()
            with nogil:
                bad = rows_place(&columns, count, self.partition_count, keyless, partitions)
                if bad == count:
                    rows_group(partitions, count, self.partition_count, starts, order)
            if bad < count:
                memcpy(
                    &asked,
                    <const char *>columns.partition.values + (columns.partition.first + bad) * sizeof(int32_t),
                    sizeof(asked),
                )
                raise InvalidRequestError(
                    f"row {bad} asks for partition {asked}; the topic has partitions 0 to {self.partition_count - 1}"
                )
            for i in range(self.partition_count):
                if starts[i] < starts[i + 1]:
                    self._add(i, &columns, order, starts[i], starts[i + 1], timestamp, full)
        finally:
            free(partitions)
            free(order)
            free(starts)
        return 0

    cdef int _add(
        self, int32_t number, rows *columns, int32_t *order, int64_t start, int64_t end, int64_t timestamp, list full
    ) except -1:
        cdef rows_batch *b = &self.batches[number]
        cdef int64_t needed = 0
        cdef int64_t before
        cdef int64_t i = start
        if b.p == NULL:
            self._reserve(b, min(<int64_t>MEMORY_SIZE_FIRST, self.size_target))
            b.target = self.size_target
            b.used = BATCH_HEADER_SIZE
        before = b.used
        while i < end:
            with nogil:
                i = rows_append(columns, order, i, end, timestamp, b, &needed)
            self.size += b.used - before
            before = b.used
            if i == end:
                break
            if i < 0:
                raise self._refusal(
                    <int>i, needed, i64_at(columns.timestamp.values,
                                           columns.timestamp.first + needed) if i == STATUS_RANGE else 0
                )
            if b.record_count > 0 and needed > self.size_target:
                full.append((number, self._finish(b)))
                before = BATCH_HEADER_SIZE
            elif needed > self.size_max:
                raise MessageTooLargeError(
                    f"row {order[i]} takes a batch of {needed} bytes; at most {self.size_max} are allowed"
                )
            else:
                self._reserve(b, min(max(needed, 2 * b.capacity), max(needed, self.size_target)))
        return 0

    cdef object _refusal(self, int status, int64_t row, int64_t microseconds):
        if status == STATUS_HEADER_KEY:
            return InvalidRequestError(f"row {row} has a header without a key")
        if status == STATUS_UTF8:
            return InvalidRequestError(f"row {row} has a header whose key is not UTF-8")
        if status == STATUS_RANGE:
            if microseconds > 0:
                return beyond_last(microseconds // 1000, f"row {row}: ")
            return InvalidRequestError(f"row {row} has a timestamp before 1970, which a record cannot bear")
        if status == STATUS_LENGTH:
            return malformed(NULL, f"the offsets of row {row} go backwards, or lead beyond what there is")
        if status == STATUS_ABSURD:
            return MessageTooLargeError(f"row {row} takes more than 2 GiB")
        return InternalError(f"kernel status {status} at row {row}: please report this")

    cdef int _reserve(self, rows_batch *b, int64_t capacity) except -1:
        cdef uint8_t *p = <uint8_t *>realloc(b.p, <size_t>capacity)
        if p == NULL:
            raise MemoryError(f"no {capacity} bytes for a batch")
        b.p = p
        b.capacity = capacity
        return 0

    cdef object _finish(self, rows_batch *b):
        """Return the batch as bytes. The next one begins in the same memory."""
        cdef batch_header header
        memset(&header, 0, sizeof(header))
        header.base_timestamp = b.base_timestamp
        header.max_timestamp = b.max_timestamp
        header.producer_id = -1
        header.producer_epoch = -1
        header.base_sequence = -1
        header.leader_epoch = -1
        header.size = <int32_t>b.used
        header.last_offset_delta = b.record_count - 1
        header.record_count = b.record_count
        with nogil:
            batch_header_write(b.p, &header)
        done = PyBytes_FromStringAndSize(<char *>b.p, b.used)
        self.size -= b.used - BATCH_HEADER_SIZE
        b.used = BATCH_HEADER_SIZE
        b.record_count = 0
        return done

    @property
    def row_sum(self):
        """The sum of the hashes of all rows that were added, modulo 2**64."""
        cdef uint64_t total = 0
        cdef int32_t i
        for i in range(self.partition_count):
            total += self.batches[i].sum
        return total

    def drain(self):
        """Return (partition, batch) of each open batch, in order of partitions, and close them."""
        cdef int32_t i
        cdef list begun = []
        for i in range(self.partition_count):
            if self.batches[i].record_count > 0:
                begun.append((i, self._finish(&self.batches[i])))
        return begun

# distutils: sources = src/_core/kernels/columns.c src/_core/kernels/batch.c src/_core/kernels/crc32c.c
"""Export records through the Arrow C data interface: buffer lifetimes, the GIL, capsules (columns: kernels/columns.h).

Memory: a builder's blocks move to an ArrowBatch, which counts the arrays exported from it. Releasing an array needs
no GIL: importers release from their own threads, while another thread may hold the GIL and wait for them. Large
blocks that are released are kept for the next ones of their size (spare_blocks.h).
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.errno cimport EIO, ENOMEM
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from failure cimport words_of_error
from kernels cimport (
    ARROW_NULLABLE, ATTRIBUTE_CODEC, ATTRIBUTE_CONTROL, BATCH_HEADER_SIZE, COLUMN_HEADERS, COLUMN_KEY, COLUMN_VALUE,
    LARGE_PAGE_SIZE, STATUS_SPACE, arrow_array, arrow_array_stream, arrow_schema, batch_header, batch_read,
    binary_column, check, columns, columns_append, columns_extend, columns_move, columns_progress, columns_repeat,
    columns_rows_size, columns_selection, columns_size, shared_begin, shared_count, shared_drop, shared_take,
)

from pyreplog.errors import ClosedError


cdef extern from "spare_blocks.h" nogil:
    enum: BLOCK_LARGE
    void *block_take(int64_t size)
    void block_give(void *block, int64_t size)


COLUMNS = ("partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch")
LOG_COLUMN = "log"
cdef tuple names_of_columns = (*COLUMNS, LOG_COLUMN)  # by number

cdef enum:
    NUMBER_LOG = 8
    COLUMN_COUNT = 9
    ROWS_FIRST = 1024
    BYTES_FIRST = 16384
    SMALL = 5120  # for fewer bytes, keeping the GIL is cheaper than releasing it


# -- columns by name --

cdef tuple read_columns(object names):
    """Return the numbers of ``names`` in COLUMNS, in the order given."""
    cdef list order = []
    for name in names:
        if name not in names_of_columns:
            raise ValueError(f"unknown column {name!r}; known are {', '.join(names_of_columns)}")
        if names_of_columns.index(name) in order:
            raise ValueError(f"column {name!r} is asked for twice")
        order.append(names_of_columns.index(name))
    return tuple(order)


cdef uint32_t wanted_bits(tuple order) except? 0:
    cdef uint32_t bits = 0
    for number in order:
        if number != NUMBER_LOG:  # its values are not in the records, so the kernels do not know it
            bits |= 1U << <uint32_t>number
    return bits


# -- schema --

cdef struct SchemaPrivate:
    arrow_schema *children[COLUMN_COUNT]
    arrow_schema structs[COLUMN_COUNT]


cdef void release_schema(arrow_schema *schema) noexcept nogil:
    cdef int64_t i
    for i in range(schema.n_children):
        # An importer that moved a child out has marked it released here, and owns it.
        if schema.children[i].release != NULL:
            schema.children[i].release(schema.children[i])
    free(schema.private_data)
    schema.release = NULL


cdef int begin_schema(arrow_schema *out, const char *format, const char *name, int64_t flags) except -1:
    """Fill a node without children. Format and name are literals, so their lifetime does not end."""
    cdef SchemaPrivate *private = <SchemaPrivate *>calloc(1, sizeof(SchemaPrivate))
    cdef int i
    if private == NULL:
        raise MemoryError()
    memset(out, 0, sizeof(arrow_schema))
    for i in range(COLUMN_COUNT):
        private.children[i] = &private.structs[i]
    out.format = format
    out.name = name
    out.flags = flags
    out.children = private.children
    out.private_data = private
    out.release = release_schema
    return 0


cdef int add_schema(arrow_schema *parent, const char *format, const char *name, int64_t flags) except -1:
    begin_schema(parent.children[parent.n_children], format, name, flags)
    parent.n_children += 1
    return 0


cdef int add_column_schema(arrow_schema *root, int number) except -1:
    cdef arrow_schema *item
    if number == 0:
        add_schema(root, b"i", b"partition", 0)
    elif number == 1:
        add_schema(root, b"l", b"offset", 0)
    elif number == 2:
        add_schema(root, b"tsm:UTC", b"timestamp", ARROW_NULLABLE)
    elif number == 3:
        add_schema(root, b"c", b"timestamp_type", 0)
    elif number == 4:
        add_schema(root, b"z", b"key", ARROW_NULLABLE)
    elif number == 5:
        add_schema(root, b"z", b"value", ARROW_NULLABLE)
    elif number == 6:
        add_schema(root, b"+l", b"headers", 0)
        add_schema(root.children[root.n_children - 1], b"+s", b"item", 0)
        item = root.children[root.n_children - 1].children[0]
        add_schema(item, b"u", b"key", 0)
        add_schema(item, b"z", b"value", ARROW_NULLABLE)
    elif number == 7:
        add_schema(root, b"i", b"leader_epoch", 0)
    else:
        add_schema(root, b"u", b"log", 0)
    return 0


cdef int export_schema(tuple order, arrow_schema *out) except -1:
    begin_schema(out, b"+s", b"", 0)
    try:
        for number in order:
            add_column_schema(out, number)
    except BaseException:
        out.release(out)
        raise
    return 0


cdef void destroy_schema_capsule(object capsule) noexcept:
    cdef arrow_schema *schema = <arrow_schema *>PyCapsule_GetPointer(capsule, b"arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef object schema_capsule(tuple order):
    cdef arrow_schema *schema = <arrow_schema *>calloc(1, sizeof(arrow_schema))
    if schema == NULL:
        raise MemoryError()
    try:
        export_schema(order, schema)
        return PyCapsule_New(schema, b"arrow_schema", destroy_schema_capsule)
    except BaseException:
        if schema.release != NULL:
            schema.release(schema)
        free(schema)
        raise


@cython.final
@cython.auto_pickle(False)
cdef class ArrowSchema:
    """The schema of some columns."""

    cdef tuple order

    def __cinit__(self, names):
        self.order = read_columns(names)

    def __arrow_c_schema__(self):
        return schema_capsule(self.order)


# -- shared memory of exported arrays --

cdef struct Memory:
    shared_count count
    columns c    # the blocks and their sizes
    void *rows   # the block with the fixed-size columns
    # The column "log": row_count + 1 int32 offsets, then the same text per row; NULL if unused.
    void *log


cdef void free_binary(binary_column *column, bint of_rows) noexcept nogil:
    block_give(column.data, column.capacity)
    if not of_rows:
        free(column.offsets)
        free(column.validity)


cdef void free_blocks(columns *c, void *rows) noexcept nogil:
    block_give(rows, columns_rows_size(c, c.row_capacity))
    free_binary(&c.key, True)
    free_binary(&c.value, True)
    free_binary(&c.header_key, False)
    free_binary(&c.header_value, False)


cdef void let_go(Memory *memory) noexcept nogil:
    """Drop one reference; the last one frees the memory."""
    if memory != NULL and shared_drop(&memory.count):
        free_blocks(&memory.c, memory.rows)
        free(memory.log)
        free(memory)


# -- arrays --

cdef struct ArrayPrivate:
    Memory *memory  # one reference
    const void *buffers[3]
    arrow_array *children[COLUMN_COUNT]
    arrow_array structs[COLUMN_COUNT]


cdef void release_array(arrow_array *array) noexcept nogil:
    cdef int64_t i
    for i in range(array.n_children):
        if array.children[i].release != NULL:
            array.children[i].release(array.children[i])
    let_go((<ArrayPrivate *>array.private_data).memory)
    free(array.private_data)
    array.release = NULL


cdef int begin_array(arrow_array *out, Memory *memory, int64_t length, int64_t offset, int64_t null_count,
                     int64_t buffer_count, const void *first, const void *second, const void *third) except -1:
    cdef ArrayPrivate *private = <ArrayPrivate *>calloc(1, sizeof(ArrayPrivate))
    cdef int i
    if private == NULL:
        raise MemoryError()
    shared_take(&memory.count)
    private.memory = memory
    private.buffers[0] = first
    private.buffers[1] = second
    private.buffers[2] = third
    for i in range(COLUMN_COUNT):
        private.children[i] = &private.structs[i]
    memset(out, 0, sizeof(arrow_array))
    out.length = length
    out.null_count = null_count
    out.offset = offset
    out.n_buffers = buffer_count
    out.buffers = private.buffers
    out.children = private.children
    out.private_data = private
    out.release = release_array
    return 0


cdef int add_array(arrow_array *parent, Memory *memory, int64_t length, int64_t offset, int64_t null_count,
                   int64_t buffer_count, const void *first, const void *second, const void *third) except -1:
    begin_array(parent.children[parent.n_children], memory, length, offset, null_count, buffer_count, first, second,
                third)
    parent.n_children += 1
    return 0


cdef int add_binary(arrow_array *parent, Memory *memory, binary_column *column, int64_t length, int64_t offset,
                    bint whole) except -1:
    cdef int64_t nulls = column.null_count if whole or column.null_count == 0 else -1
    add_array(parent, memory, length, offset, nulls, 3, column.validity if column.null_count else NULL,
              column.offsets, column.data)
    return 0


cdef int add_column(arrow_array *root, Memory *memory, columns *c, int number, int64_t start, int64_t length) except -1:
    cdef bint whole = length == c.row_count
    cdef arrow_array *headers
    cdef arrow_array *item
    cdef int64_t nulls
    if number == 0:
        add_array(root, memory, length, start, 0, 2, NULL, c.partition, NULL)
    elif number == 1:
        add_array(root, memory, length, start, 0, 2, NULL, c.offset, NULL)
    elif number == 2:
        nulls = c.timestamp_null_count if whole or c.timestamp_null_count == 0 else -1
        add_array(root, memory, length, start, nulls, 2, c.timestamp_validity if c.timestamp_null_count else NULL,
                  c.timestamp, NULL)
    elif number == 3:
        add_array(root, memory, length, start, 0, 2, NULL, c.timestamp_type, NULL)
    elif number == 4:
        add_binary(root, memory, &c.key, length, start, whole)
    elif number == 5:
        add_binary(root, memory, &c.value, length, start, whole)
    elif number == 6:
        add_array(root, memory, length, start, 0, 2, NULL, c.header_offsets, NULL)
        headers = root.children[root.n_children - 1]
        add_array(headers, memory, c.header_count, 0, 0, 1, NULL, NULL, NULL)
        item = headers.children[0]
        add_binary(item, memory, &c.header_key, c.header_count, 0, True)
        add_binary(item, memory, &c.header_value, c.header_count, 0, True)
    elif number == 7:
        add_array(root, memory, length, start, 0, 2, NULL, c.leader_epoch, NULL)
    else:
        add_array(root, memory, length, start, 0, 3, NULL, memory.log, <int32_t *>memory.log + c.row_count + 1)
    return 0


cdef void destroy_array_capsule(object capsule) noexcept:
    cdef arrow_array *array = <arrow_array *>PyCapsule_GetPointer(capsule, b"arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


@cython.final
@cython.auto_pickle(False)
cdef class ArrowBatch:
    """One Arrow record batch: rows [start, start + length) of shared memory."""

    cdef Memory *memory  # one reference
    cdef tuple order
    cdef int64_t start
    cdef int64_t length

    def __cinit__(self):
        self.memory = NULL

    def __init__(self):
        if self.memory == NULL:
            raise TypeError("an ArrowBatch comes from ColumnsBuilder.finish()")

    def __dealloc__(self):
        let_go(self.memory)

    @property
    def row_count(self):
        return self.length

    def slices(self, int64_t row_count):
        """Return the rows as batches of at most ``row_count`` rows. Nothing is copied."""
        if row_count < 1:
            raise ValueError(f"row_count is {row_count}; it must be at least 1")
        if self.length <= row_count:
            return [self]
        cdef list parts = []
        cdef int64_t start = 0
        while start < self.length:
            parts.append(share(self, self.start + start, min(row_count, self.length - start)))
            start += row_count
        return parts

    def __repr__(self):
        names = ", ".join([names_of_columns[number] for number in self.order])
        return f"<pyreplog.arrow.ArrowBatch of {self.length} row{'' if self.length == 1 else 's'}: {names}>"

    def __arrow_c_schema__(self):
        return schema_capsule(self.order)

    def __arrow_c_array__(self, requested_schema=None):
        schema = schema_capsule(self.order)
        cdef arrow_array *array = <arrow_array *>calloc(1, sizeof(arrow_array))
        if array == NULL:
            raise MemoryError()
        try:
            export_batch(self, array)
            return schema, PyCapsule_New(array, b"arrow_array", destroy_array_capsule)
        except BaseException:
            if array.release != NULL:
                array.release(array)
            free(array)
            raise


cdef int export_batch(ArrowBatch batch, arrow_array *out) except -1:
    begin_array(out, batch.memory, batch.length, 0, 0, 1, NULL, NULL, NULL)
    try:
        for number in batch.order:
            add_column(out, batch.memory, &batch.memory.c, number, batch.start, batch.length)
    except BaseException:
        out.release(out)
        raise
    return 0


cdef ArrowBatch share(ArrowBatch whole, int64_t start, int64_t length):
    cdef ArrowBatch part = ArrowBatch.__new__(ArrowBatch)
    shared_take(&whole.memory.count)
    part.memory = whole.memory
    part.order = whole.order
    part.start = start
    part.length = length
    return part


# -- builder --

cdef void *repeated(bytes text, int64_t count) except NULL:
    """Return a block for Memory.log: the offsets, then ``count`` times the same text."""
    cdef int64_t size = len(text)
    if size * count > INT32_MAX:
        raise OverflowError(f"{count} rows that name a log by {size} bytes in one Arrow batch: finish() it earlier")
    cdef void *block = malloc(<size_t>((count + 1) * <int64_t>sizeof(int32_t) + size * count))
    if block == NULL:
        raise MemoryError()
    columns_repeat(<const uint8_t *><const char *>text, size, count, <int32_t *>block,
                   <uint8_t *>(<int32_t *>block + count + 1))
    return block


cdef int grow(void **block, int64_t size) except -1:
    cdef void *grown = realloc(block[0], <size_t>size)
    if grown == NULL:
        raise MemoryError()
    block[0] = grown
    return 0


cdef int grow_bits(uint8_t **bits, int64_t rows_before, int64_t rows) except -1:
    """Grow a bitmap to ``rows``, a multiple of 64, and set the new bits."""
    grow(<void **>bits, rows // 8)
    memset(bits[0] + rows_before // 8, 0xFF, <size_t>(rows // 8 - rows_before // 8))
    return 0


cdef int grow_offsets(int32_t **offsets, int64_t rows) except -1:
    cdef bint first = offsets[0] == NULL
    grow(<void **>offsets, (rows + 1) * <int64_t>sizeof(int32_t))
    if first:
        offsets[0][0] = 0
    return 0


cdef int64_t larger(int64_t needed, int64_t capacity, int64_t least) noexcept nogil:
    return max(max(needed, 2 * capacity), least)


@cython.final
@cython.auto_pickle(False)
cdef class ColumnsBuilder:
    """Collects columns. Concurrent use by a second thread is a RuntimeError."""

    cdef columns c
    cdef void *rows             # as Memory.rows
    cdef tuple order
    cdef bint busy
    cdef int64_t rows_before    # capacities of the last batch, which the next one starts with
    cdef int64_t key_before
    cdef int64_t value_before
    cdef int64_t reached

    def __cinit__(self, names):
        memset(&self.c, 0, sizeof(columns))
        self.rows = NULL
        self.order = read_columns(names)
        self.c.wanted = wanted_bits(self.order)
        self.rows_before = ROWS_FIRST
        self.key_before = BYTES_FIRST
        self.value_before = BYTES_FIRST
        self.reached = -1

    def __dealloc__(self):
        free_blocks(&self.c, self.rows)

    @property
    def row_count(self):
        return self.c.row_count

    @property
    def size(self):
        return columns_size(&self.c)

    @property
    def next_offset(self):
        return self.reached

    def append(self, batch, payload=None, *, int32_t partition=-1, int64_t start_offset=0, int64_t end_offset=INT64_MAX,
               start_timestamp=None, end_timestamp=None, int32_t record_count=-1):
        cdef columns_selection selection
        cdef columns_progress progress
        cdef batch_header header
        cdef Py_buffer whole
        cdef Py_buffer records
        cdef const uint8_t *p
        cdef const uint8_t *end
        cdef int64_t added
        select(&selection, partition, start_offset, end_offset, start_timestamp, end_timestamp)
        PyObject_GetBuffer(batch.data, &whole, PyBUF_SIMPLE)
        try:
            p = <const uint8_t *>whole.buf
            check(batch_read(p, p + whole.len, &header), 0)
            header.record_count = record_count if record_count >= 0 else header.record_count
            if header.attributes & ATTRIBUTE_CONTROL:
                added = 0
            elif payload is None:
                if header.attributes & ATTRIBUTE_CODEC:
                    raise ValueError("the batch is compressed: pass its decompressed records as payload")
                added = self.append_records(&selection, &header, p + BATCH_HEADER_SIZE, p + header.size, &progress)
            else:
                PyObject_GetBuffer(payload, &records, PyBUF_SIMPLE)
                try:
                    p = <const uint8_t *>records.buf
                    end = p + records.len
                    added = self.append_records(&selection, &header, p, end, &progress)
                finally:
                    PyBuffer_Release(&records)
        finally:
            PyBuffer_Release(&whole)
        self.reached = header.base_offset + header.last_offset_delta + 1
        return added

    def extend(self, data, int64_t position=0, *, int32_t partition=-1, int64_t start_offset=0,
               int64_t end_offset=INT64_MAX, start_timestamp=None, end_timestamp=None, bint check_crc=True,
               int64_t row_limit=32768, int64_t size_limit=2097152):
        cdef columns_selection selection
        cdef columns_progress progress
        cdef Py_buffer view
        cdef const uint8_t *p
        cdef const uint8_t *end
        cdef int status
        select(&selection, partition, start_offset, end_offset, start_timestamp, end_timestamp)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if position < 0 or position > view.len:
                raise ValueError(f"position {position} is outside data, which has {view.len} bytes")
            p = <const uint8_t *>view.buf
            end = p + view.len
            progress.next_offset = self.reached
            self.begin()
            try:
                while True:
                    if view.len - position > SMALL:
                        with nogil:
                            status = columns_extend(&self.c, &selection, p + position, end, check_crc, row_limit,
                                                    size_limit, &progress)
                    else:
                        status = columns_extend(&self.c, &selection, p + position, end, check_crc, row_limit,
                                                size_limit, &progress)
                    position += progress.position
                    self.reached = progress.next_offset
                    if status != STATUS_SPACE:
                        break
                    self.reserve(&progress)
                check(status, position)
            finally:
                self.busy = False
        finally:
            PyBuffer_Release(&view)
        return position

    def finish(self, log=""):
        cdef ArrowBatch batch = ArrowBatch.__new__(ArrowBatch)
        self.begin()
        try:
            if self.c.row_capacity == 0:
                self.reserve_rows(1)  # so that a batch without rows has buffers too
            self.key_before = max(self.c.key.capacity, BYTES_FIRST)
            self.value_before = max(self.c.value.capacity, BYTES_FIRST)
            self.rows_before = max(self.c.row_capacity, ROWS_FIRST)
            batch.memory = <Memory *>calloc(1, sizeof(Memory))
            if batch.memory == NULL:
                raise MemoryError()
            shared_begin(&batch.memory.count)
            if NUMBER_LOG in self.order:
                batch.memory.log = repeated(log.encode(), self.c.row_count)
            batch.memory.c = self.c
            batch.memory.rows = self.rows
            batch.order = self.order
            batch.start = 0
            batch.length = self.c.row_count
            memset(&self.c, 0, sizeof(columns))
            self.c.wanted = wanted_bits(self.order)
            self.rows = NULL
        finally:
            self.busy = False
        return batch

    cdef int begin(self) except -1:
        if self.busy:
            raise RuntimeError("a ColumnsBuilder belongs to one thread: another one is inside")
        self.busy = True
        return 0

    cdef int64_t append_records(self, columns_selection *selection, batch_header *header, const uint8_t *p,
                                const uint8_t *end,
                                columns_progress *progress) except -1:
        cdef int64_t added
        self.begin()
        try:
            while True:
                if end - p > SMALL:
                    with nogil:
                        added = columns_append(&self.c, selection, header, p, end, progress)
                else:
                    added = columns_append(&self.c, selection, header, p, end, progress)
                if added != STATUS_SPACE:
                    break
                self.reserve(progress)
            if added < 0:
                check(<int>added, progress.position)
        finally:
            self.busy = False
        return added

    cdef int reserve(self, columns_progress *progress) except -1:
        """Make the room that a kernel has requested."""
        if progress.rows_needed == 0:
            return self.reserve_headers()
        self.reserve_rows(progress.rows_needed)
        if self.c.wanted & COLUMN_KEY:
            reserve_bytes(&self.c.key, progress.bytes_needed, self.key_before)
        if self.c.wanted & COLUMN_VALUE:
            reserve_bytes(&self.c.value, progress.bytes_needed, self.value_before)
        if self.c.wanted & COLUMN_HEADERS:
            reserve_bytes(&self.c.header_key, progress.bytes_needed, BYTES_FIRST)
            reserve_bytes(&self.c.header_value, progress.bytes_needed, BYTES_FIRST)
        return 0

    cdef int reserve_rows(self, int64_t more) except -1:
        cdef int64_t before = self.c.row_capacity
        cdef int64_t needed = self.c.row_count + more
        cdef int64_t rows
        if needed <= before:
            return 0
        if needed > INT32_MAX:
            raise OverflowError(f"{needed} rows in one Arrow batch: finish() it before it is that long")
        rows = (larger(needed, before, self.rows_before) + 63) // 64 * 64
        self.move_rows(rows)
        if self.c.wanted & COLUMN_KEY:
            reserve_bytes(&self.c.key, 1, 1)
        if self.c.wanted & COLUMN_VALUE:
            reserve_bytes(&self.c.value, 1, 1)
        if self.c.wanted & COLUMN_HEADERS:
            reserve_bytes(&self.c.header_key, 1, 1)
            reserve_bytes(&self.c.header_value, 1, 1)
            if self.c.header_capacity == 0:
                self.reserve_headers()
        return 0

    cdef int move_rows(self, int64_t capacity) except -1:
        cdef columns before = self.c
        cdef void *rows = block_take(columns_rows_size(&before, capacity))
        if rows == NULL:
            raise MemoryError()
        columns_move(&self.c, <uint8_t *>rows, capacity)
        block_give(self.rows, columns_rows_size(&before, before.row_capacity))
        self.rows = rows
        return 0

    cdef int reserve_headers(self) except -1:
        cdef int64_t before = self.c.header_capacity
        cdef int64_t rows = larger(64, before, 64)
        if rows > INT32_MAX:
            raise OverflowError("too many headers in one Arrow batch: finish() it earlier")
        grow_offsets(&self.c.header_key.offsets, rows)
        grow_offsets(&self.c.header_value.offsets, rows)
        grow_bits(&self.c.header_value.validity, before, rows)
        self.c.header_capacity = rows
        return 0


cdef int reserve_bytes(binary_column *column, int64_t more, int64_t least) except -1:
    cdef int64_t needed = column.size + more
    cdef int64_t bytes
    cdef void *data
    if needed <= column.capacity:
        return 0
    if needed > INT32_MAX:
        raise OverflowError(f"{needed} bytes in one column of an Arrow batch: finish() it before it is that large")
    bytes = min(larger(needed, column.capacity, least), <int64_t>INT32_MAX)
    if needed <= LARGE_PAGE_SIZE < bytes:
        # A batch of a scan holds at most LARGE_PAGE_SIZE bytes. With blocks of twice the size, only
        # half as many could be kept for reuse.
        bytes = LARGE_PAGE_SIZE
    if bytes < BLOCK_LARGE:
        grow(<void **>&column.data, bytes)
    else:
        if bytes >= LARGE_PAGE_SIZE:
            bytes = min((bytes + LARGE_PAGE_SIZE - 1) // LARGE_PAGE_SIZE * LARGE_PAGE_SIZE, <int64_t>INT32_MAX)
        data = block_take(bytes)
        if data == NULL:
            raise MemoryError()
        if column.size:
            memcpy(data, column.data, <size_t>column.size)
        block_give(column.data, column.capacity)
        column.data = <uint8_t *>data
    column.capacity = bytes
    return 0


cdef int select(columns_selection *out, int32_t partition, int64_t start_offset, int64_t end_offset, start_timestamp,
                end_timestamp) except -1:
    out.partition = partition
    out.start_offset = start_offset
    out.end_offset = end_offset
    out.timed = start_timestamp is not None or end_timestamp is not None
    out.first_timestamp = INT64_MIN if start_timestamp is None else start_timestamp
    if end_timestamp is None:
        out.last_timestamp = INT64_MAX
    elif end_timestamp <= INT64_MIN:
        out.first_timestamp = INT64_MAX
        out.last_timestamp = INT64_MIN
    else:
        out.last_timestamp = end_timestamp - 1
    return 0


# -- stream --

cdef struct Stream:
    PyObject *source  # owned: an iterator of ArrowBatch
    PyObject *order   # owned: a tuple
    char *error       # text of the failure; NULL without one, or if there was no memory for it
    bint failed
    bint ended


cdef void fail(Stream *state) noexcept:
    """Mark the stream as failed for good by the exception that is set, even if its text cannot be made."""
    state.failed = True
    free(state.error)
    state.error = NULL  # the next call may run Python code that asks for the error
    state.error = words_of_error()


cdef int put_schema(Stream *state, arrow_schema *out) except -1:
    return export_schema(<tuple><object>state.order, out)


cdef int put_next(Stream *state, arrow_array *out) except -1:
    cdef ArrowBatch batch = next(<object>state.source, None)
    if batch is None:
        state.ended = True
        return 0
    if batch.order != <object>state.order:
        raise TypeError("a batch of the source has other columns than its stream")
    return export_batch(batch, out)


cdef int stream_schema(arrow_array_stream *stream, arrow_schema *out) noexcept with gil:
    cdef Stream *state = <Stream *>stream.private_data
    memset(out, 0, sizeof(arrow_schema))
    if (<int (*)(Stream *, arrow_schema *) noexcept>put_schema)(state, out) == 0:
        return 0
    fail(state)
    out.release = NULL
    return ENOMEM


cdef int stream_next(arrow_array_stream *stream, arrow_array *out) noexcept with gil:
    cdef Stream *state = <Stream *>stream.private_data
    memset(out, 0, sizeof(arrow_array))
    if state.failed:
        return EIO  # a failed iterator looks exhausted if it is asked again: do not report the end
    if state.ended or (<int (*)(Stream *, arrow_array *) noexcept>put_next)(state, out) == 0:
        return 0
    fail(state)
    out.release = NULL
    return EIO


cdef const char *stream_error(arrow_array_stream *stream) noexcept nogil:
    cdef Stream *state = <Stream *>stream.private_data
    if state.failed and state.error == NULL:
        return b"an error whose text could not be made, such as a MemoryError"
    return state.error


cdef extern from "Python.h":
    bint Py_IsInitialized() nogil


cdef void release_stream(arrow_array_stream *stream) noexcept nogil:
    cdef Stream *state = <Stream *>stream.private_data
    if Py_IsInitialized():
        with gil:
            Py_DECREF(<object>state.source)
            Py_DECREF(<object>state.order)
    free(state.error)
    free(state)
    stream.release = NULL


cdef void destroy_stream_capsule(object capsule) noexcept:
    cdef arrow_array_stream *stream = <arrow_array_stream *>PyCapsule_GetPointer(capsule, b"arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)


@cython.final
@cython.auto_pickle(False)
cdef class ArrowStream:
    """A stream of the batches of a source. It can be imported once."""

    cdef tuple order
    cdef object source

    def __cinit__(self, names, source):
        self.order = read_columns(names)
        self.source = iter(source)

    def __arrow_c_schema__(self):
        return schema_capsule(self.order)

    def __arrow_c_stream__(self, requested_schema=None):
        if self.source is None:
            raise ClosedError("this stream was handed over already; ask its scan for another one")
        cdef arrow_array_stream *stream = <arrow_array_stream *>calloc(1, sizeof(arrow_array_stream))
        cdef Stream *state = <Stream *>calloc(1, sizeof(Stream))
        if stream == NULL or state == NULL:
            free(stream)
            free(state)
            raise MemoryError()
        Py_INCREF(self.source)
        Py_INCREF(self.order)
        state.source = <PyObject *>self.source
        state.order = <PyObject *>self.order
        stream.get_schema = stream_schema
        stream.get_next = stream_next
        stream.get_last_error = stream_error
        stream.release = release_stream
        stream.private_data = state
        try:
            capsule = PyCapsule_New(stream, b"arrow_array_stream", destroy_stream_capsule)
        except BaseException:
            stream.release(stream)
            free(stream)
            raise
        self.source = None
        return capsule

# distutils: sources = src/_core/kernels/table.c src/_core/kernels/batch.c src/_core/kernels/crc32c.c
"""ArrowRows encodes an Arrow table of keys, values, headers and timestamps as record batches. columns.pyx does the
reverse."""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport strtol
from libc.string cimport memset, strcmp, strlen, strncmp

from foreign cimport (
    BUFFERS_ANY,
    BUFFERS_VIEW,
    check_array,
    check_buffer,
    check_items,
    check_root,
    check_schema,
    malformed,
    name_of,
    taken_already,
)
from kernels cimport (
    BATCH_HEADER_SIZE,
    STATUS_HEADER_KEY,
    STATUS_LENGTH,
    STATUS_RANGE,
    TABLE_FIXED,
    TABLE_LARGE,
    TABLE_NONE,
    TABLE_SMALL,
    TABLE_VIEW,
    arrow_array,
    arrow_array_stream,
    arrow_schema,
    batch_header,
    batch_header_write,
    i32_at,
    i64_at,
    table_batch,
    table_bytes,
    table_check,
    table_encode,
    table_headers_empty,
    table_rows,
    table_time,
    table_time_at,
)

from pyreplog.errors import ConfigError
from pyreplog.timestamps import beyond_last


# The usual names of the types of the C data interface, by their codes or prefixes of codes.
_TYPES = {
    "n": "null", "b": "bool", "c": "int8", "C": "uint8", "s": "int16", "S": "uint16", "i": "int32", "I": "uint32",
    "l": "int64", "L": "uint64", "e": "float16", "f": "float32", "g": "float64",
    "z": "binary", "Z": "large_binary", "vz": "binary_view", "u": "string", "U": "large_string", "vu": "string_view",
    "+l": "list", "+L": "large_list", "+vl": "list_view", "+vL": "large_list_view",
    "+s": "struct", "+m": "map",
}
_FAMILIES = {
    "d": "decimal", "w": "fixed-size binary", "td": "date", "tt": "time", "ts": "timestamp", "tD": "duration",
    "ti": "interval",
    "+w": "fixed-size list", "+u": "union", "+r": "run-end encoded",
}


cdef str _type_of(arrow_schema *schema):
    """Return the name of a column's type, for error messages."""
    if schema.dictionary != NULL:
        return f"dictionary of {_type_named(schema.dictionary.format)}"
    return _type_named(schema.format)


cdef str _type_named(const char *format):
    code = "" if format == NULL else format.decode("utf-8", "replace")
    return _TYPES.get(code) or _FAMILIES.get(code[:2]) or _FAMILIES.get(code[:1]) or repr(code)


cdef object _wrong(arrow_schema *schema, str wanted, str what="column"):
    return TypeError(
        f"{what} {name_of(schema).decode('utf-8', 'replace')} is of type {_type_of(schema)}; it must be {wanted}"
    )


cdef int _read_bytes(table_bytes *out, arrow_schema *schema, arrow_array *array, arrow_array *parent,
                     str what="column") except -1:
    """Read a column of bytes or text. ``out`` borrows from ``array``; ``what`` names it in errors."""
    cdef const char *format = schema.format
    cdef char *behind
    cdef long width
    cdef int64_t last
    memset(out, 0, sizeof(table_bytes))
    if schema.dictionary != NULL:
        raise _wrong(schema, "binary or string, not a dictionary of them: cast it", what)
    if strcmp(format, b"n") == 0:
        check_array(array, schema, parent, BUFFERS_ANY)
        out.layout = TABLE_NONE
        return 0
    if strcmp(format, b"z") == 0 or strcmp(format, b"u") == 0:
        out.layout = TABLE_SMALL
    elif strcmp(format, b"Z") == 0 or strcmp(format, b"U") == 0:
        out.layout = TABLE_LARGE
    elif strcmp(format, b"vz") == 0 or strcmp(format, b"vu") == 0:
        out.layout = TABLE_VIEW
    elif strncmp(format, b"w:", 2) == 0:
        width = strtol(format + 2, &behind, 10)
        if not 0 <= width <= INT32_MAX or behind == format + 2 or behind[0] != 0:
            raise _wrong(schema, "binary or string", what)
        out.layout = TABLE_FIXED
        out.width = <int32_t>width
    else:
        raise _wrong(schema, "binary or string", what)
    check_array(array, schema, parent,
                BUFFERS_VIEW if out.layout == TABLE_VIEW else 2 if out.layout == TABLE_FIXED else 3)
    out.validity = <const uint8_t *>array.buffers[0]
    out.first = parent.offset + array.offset
    if out.layout != TABLE_FIXED or out.width > 0:
        check_buffer(array, schema, 1)
    if out.layout == TABLE_FIXED:
        if array.offset + array.length > INT64_MAX // max(out.width, 1):
            raise malformed(schema, f"{array.length} rows of {out.width} bytes cannot be")
        out.data = <const uint8_t *>array.buffers[1]
        return 0
    out.places = array.buffers[1]
    if out.layout == TABLE_VIEW:
        out.buffers = <void *>(array.buffers + 2)
        out.buffer_count = array.n_buffers - 3
        out.buffer_sizes = array.buffers[array.n_buffers - 1]
        if out.buffer_count > 0:
            check_buffer(array, schema, array.n_buffers - 1)
    else:
        out.data = <const uint8_t *>array.buffers[2]
        if array.length > 0:
            last = array.offset + array.length
            out.data_size = i32_at(out.places, last) if out.layout == TABLE_SMALL else i64_at(out.places, last)
    return 0


cdef int _read_time(table_time *out, arrow_schema *schema, arrow_array *array, arrow_array *parent) except -1:
    """Read a column of timestamps, or of integers in ms."""
    cdef const char *format = schema.format
    out.multiplier = 1
    out.divisor = 1
    if schema.dictionary != NULL:
        raise _wrong(schema, "a timestamp, or int64 in ms, not a dictionary of them: cast it")
    if strcmp(format, b"n") == 0:
        check_array(array, schema, parent, BUFFERS_ANY)
        out.is_null = True
        return 0
    if strncmp(format, b"ts", 2) == 0 and strlen(format) == 4:
        raise ConfigError(
            "column timestamp has no time zone, so its times are ambiguous: give it one, for example "
            'pc.assume_timezone(column, "UTC") in pyarrow, .dt.tz_localize("UTC") in pandas,'
            ' .dt.replace_time_zone("UTC") in Polars'
        )
    if strncmp(format, b"tss:", 4) == 0:
        out.multiplier = 1000
    elif strncmp(format, b"tsu:", 4) == 0:
        out.divisor = 1000
    elif strncmp(format, b"tsn:", 4) == 0:
        out.divisor = 1000000
    elif strncmp(format, b"tsm:", 4) != 0 and strcmp(format, b"l") != 0:
        raise _wrong(schema, "a timestamp, or int64 in ms")
    check_array(array, schema, parent, 2)
    check_buffer(array, schema, 1)
    out.validity = <const uint8_t *>array.buffers[0]
    out.values = array.buffers[1]
    out.first = parent.offset + array.offset
    out.is_number = strcmp(format, b"l") == 0
    return 0


cdef object _time_error(table_time *times, int64_t row, int64_t number):
    """Return the error for ``row`` of the array, row ``number`` of the table, whose time no record can have."""
    cdef object given = i64_at(times.values, times.first + row)
    if given < 0:
        return ConfigError(f"row {number}: the timestamp is before 1970, when timestamps begin")
    return beyond_last(given // times.divisor * times.multiplier, f"row {number}: ")


_HEADERS = "a list of structs of key and value, or a map"


cdef int64_t _read_list(table_bytes *out, arrow_schema *schema) except -1:
    """Read the layout of a list of headers from ``schema``, and return the number of its buffers."""
    cdef const char *format = schema.format
    cdef char *behind
    cdef long width
    if strcmp(format, b"+l") == 0 or strcmp(format, b"+m") == 0:
        out.layout = TABLE_SMALL
        return 2
    if strcmp(format, b"+L") == 0:
        out.layout = TABLE_LARGE
        return 2
    if strcmp(format, b"+vl") == 0 or strcmp(format, b"+vL") == 0:
        out.layout = TABLE_VIEW
        out.width = 4 if strcmp(format, b"+vl") == 0 else 8
        return 3
    if strncmp(format, b"+w:", 3) == 0:
        width = strtol(format + 3, &behind, 10)
        if 0 <= width <= INT32_MAX and behind != format + 3 and behind[0] == 0:
            out.layout = TABLE_FIXED
            out.width = <int32_t>width
            return 1
    raise _wrong(schema, _HEADERS)


cdef int _header_fields(arrow_schema *schema, arrow_schema *item) except -1:
    """Return which child of a header is its key: 0 or 1. In a map the first one is, whatever its name."""
    cdef const char *first
    cdef const char *second
    if strcmp(item.format, b"+s") == 0 and item.dictionary == NULL and item.n_children == 2:
        if strcmp(schema.format, b"+m") == 0:
            return 0
        first, second = name_of(item.children[0]), name_of(item.children[1])
        if strcmp(first, b"key") == 0 and strcmp(second, b"value") == 0:
            return 0
        if strcmp(first, b"value") == 0 and strcmp(second, b"key") == 0:
            return 1
    raise _wrong(schema, _HEADERS)


cdef int _read_headers(table_rows *out, arrow_schema *schema, arrow_array *array, arrow_array *parent) except -1:
    """Read a list (of any layout) of structs of key and value, or a map.

    If all lists are empty they may have any type, because their writer saw no header to infer it from.
    """
    cdef arrow_schema *item
    cdef arrow_array *items
    cdef table_bytes lists
    cdef int64_t buffer_count
    cdef int key
    if schema.dictionary != NULL:
        raise _wrong(schema, _HEADERS)
    if strcmp(schema.format, b"n") == 0:
        check_array(array, schema, parent, BUFFERS_ANY)
        return 0
    memset(&lists, 0, sizeof(lists))
    buffer_count = _read_list(&lists, schema)
    check_schema(schema)
    if schema.n_children != 1:
        raise malformed(schema, f"it has {schema.n_children} children where a list has one")
    item = schema.children[0]
    check_schema(item)
    items = check_items(array, schema, parent, buffer_count)
    lists.validity = <const uint8_t *>array.buffers[0]
    lists.first = parent.offset + array.offset
    if lists.layout == TABLE_FIXED:
        if array.offset + array.length > INT64_MAX // max(lists.width, 1) - 1:
            raise malformed(schema, f"{array.length} rows of {lists.width} headers cannot be")
    else:
        lists.places = array.buffers[1]
        if lists.layout == TABLE_VIEW:
            lists.buffer_sizes = array.buffers[2]
    out.headers = lists
    if table_headers_empty(out, parent.length):
        out.headers.layout = TABLE_NONE
        return 0
    key = _header_fields(schema, item)
    _read_bytes(&out.header_key, item.children[key], items.children[key], items, "a header's")
    _read_bytes(&out.header_value, item.children[1 - key], items.children[1 - key], items, "a header's")
    out.header.validity = <const uint8_t *>items.buffers[0]
    out.header.first = items.offset
    out.header_count = items.length
    return 0


@cython.final
@cython.no_gc
cdef class _Chunk:
    """One Arrow array of rows, which it owns, and its columns."""

    cdef arrow_array array    # released with this object
    cdef table_rows rows      # borrowed from `array`
    cdef int64_t start        # the number of its first row in the table

    def __dealloc__(self):
        if self.array.release != NULL:
            self.array.release(&self.array)

    cdef int read(self, arrow_schema *schema) except -1:
        cdef arrow_array *array = &self.array
        cdef arrow_array *column
        cdef arrow_schema *kind
        cdef const char *name
        cdef int64_t i
        check_root(array, schema)
        for i in range(schema.n_children):
            kind = schema.children[i]
            column = array.children[i]
            name = name_of(kind)
            if strcmp(name, b"key") == 0:
                _read_bytes(&self.rows.key, kind, column, array)
            elif strcmp(name, b"value") == 0:
                _read_bytes(&self.rows.value, kind, column, array)
            elif strcmp(name, b"headers") == 0:
                _read_headers(&self.rows, kind, column, array)
            elif strcmp(name, b"timestamp") == 0:
                _read_time(&self.rows.timestamp, kind, column, array)
        return 0


@cython.final
cdef class ArrowRows:
    """The rows of an object with Arrow's C interfaces. Immutable: any thread."""

    cdef list chunks
    cdef readonly tuple names
    cdef readonly int64_t row_count

    def __cinit__(self, source):
        self.chunks = []
        self.row_count = 0
        if hasattr(source, "__arrow_c_stream__"):
            self._take_stream(source.__arrow_c_stream__())
        elif hasattr(source, "__arrow_c_array__"):
            schema_capsule, array_capsule = source.__arrow_c_array__()
            self._take_array(schema_capsule, array_capsule)
        else:
            raise TypeError(
                f"{type(source).__name__} is no Arrow data: it takes a table, record batch or stream, of pyarrow,"
                " Polars, DuckDB or pandas"
            )

    cdef int _begin(self, arrow_schema *schema) except -1:
        cdef int64_t i
        if schema.release == NULL:
            raise malformed(NULL, "its stream has no schema")
        check_schema(schema)
        if strcmp(schema.format, b"+s") != 0 or schema.dictionary != NULL:
            raise TypeError(f"a table has named columns, and this is of type {_type_of(schema)}")
        self.names = tuple([name_of(schema.children[i]).decode("utf-8", "replace") for i in range(schema.n_children)])
        return 0

    cdef int _add(self, _Chunk chunk, arrow_schema *schema) except -1:
        chunk.read(schema)
        chunk.start = self.row_count
        if chunk.array.length > INT64_MAX - self.row_count:
            raise malformed(NULL, f"{chunk.array.length} rows more cannot be")
        if chunk.array.length:
            self.row_count += chunk.array.length
            self.chunks.append(chunk)
        return 0

    cdef int _take_stream(self, capsule) except -1:
        cdef arrow_array_stream *given = <arrow_array_stream *>PyCapsule_GetPointer(capsule, b"arrow_array_stream")
        cdef arrow_array_stream stream
        cdef arrow_schema schema
        if given.release == NULL:
            raise taken_already("Arrow stream")
        # Moved out of the capsule: another consumer that tries to read the stream gets an error.
        stream = given[0]
        given.release = NULL
        memset(&schema, 0, sizeof(schema))
        try:
            self._pull(&stream, &schema)
        finally:
            with nogil:
                if schema.release != NULL:
                    schema.release(&schema)
                if stream.release != NULL:
                    stream.release(&stream)

    cdef int _pull(self, arrow_array_stream *stream, arrow_schema *schema) except -1:
        cdef _Chunk chunk
        cdef int status
        if stream.get_schema == NULL or stream.get_next == NULL:
            raise malformed(NULL, "its stream cannot be read")
        with nogil:
            status = stream.get_schema(stream, schema)
        if status:
            schema.release = NULL  # after a failure its content is undefined
            raise self._refusal(stream, status)
        self._begin(schema)
        while True:
            chunk = _Chunk.__new__(_Chunk)
            with nogil:
                status = stream.get_next(stream, &chunk.array)
            if status:
                chunk.array.release = NULL
                raise self._refusal(stream, status)
            if chunk.array.release == NULL:
                return 0
            self._add(chunk, schema)

    cdef object _refusal(self, arrow_array_stream *stream, int status):
        cdef const char *text = NULL
        if stream.get_last_error != NULL:
            text = stream.get_last_error(stream)
        return ValueError(
            f"the Arrow stream failed: {'error %d' % status if text == NULL else text.decode('utf-8', 'replace')}"
        )

    cdef int _take_array(self, schema_capsule, array_capsule) except -1:
        cdef arrow_schema *given = <arrow_schema *>PyCapsule_GetPointer(schema_capsule, b"arrow_schema")
        cdef arrow_array *array = <arrow_array *>PyCapsule_GetPointer(array_capsule, b"arrow_array")
        cdef _Chunk chunk = _Chunk.__new__(_Chunk)
        cdef arrow_schema schema
        if given.release == NULL or array.release == NULL:
            raise taken_already("Arrow array")
        schema = given[0]
        given.release = NULL  # moved
        chunk.array = array[0]
        array.release = NULL
        try:
            self._begin(&schema)
            self._add(chunk, &schema)
        finally:
            schema.release(&schema)
        return 0

    def check(self, int64_t size_max):
        """Return the first row that does not fit a batch of ``size_max`` bytes, or ``row_count``."""
        cdef _Chunk chunk
        cdef int64_t found
        cdef int64_t row = 0
        for chunk in self.chunks:
            with nogil:
                found = table_check(&chunk.rows, chunk.array.length, size_max, &row)
            if found == STATUS_HEADER_KEY:
                raise ConfigError(f"row {chunk.start + row}: a header has no key")
            if found == STATUS_RANGE:
                raise _time_error(&chunk.rows.timestamp, row, chunk.start + row)
            if found == STATUS_LENGTH:
                raise ConfigError(
                    f"row {chunk.start + row}: the Arrow array's offsets go backwards, or lead beyond its data."
                    " Report it to its maker"
                )
            if found < 0:
                raise ConfigError(f"row {chunk.start + row}: a header's key is not UTF-8")
            if found < chunk.array.length:
                return chunk.start + found
        return self.row_count

    def timestamp(self, int64_t row, int64_t otherwise):
        """Return the timestamp (ms) that :meth:`encode` gives to ``row``."""
        cdef _Chunk chunk
        if row >= 0:
            for chunk in self.chunks:
                if row < chunk.start + chunk.array.length:
                    return table_time_at(&chunk.rows, row - chunk.start, otherwise)
        raise IndexError(f"row {row} of {self.row_count}")

    def encode(self, int64_t row, int64_t timestamp, target, size_target=None):
        """Write a batch of the rows from ``row`` on into ``target``. Return (the first row not taken, bytes
        written)."""
        cdef Py_buffer view
        cdef table_batch batch
        cdef batch_header header
        cdef _Chunk chunk
        cdef int64_t taken
        memset(&batch, 0, sizeof(batch))
        memset(&header, 0, sizeof(header))
        PyObject_GetBuffer(target, &view, PyBUF_WRITABLE)
        try:
            if view.len < BATCH_HEADER_SIZE:
                raise ValueError(f"target has {view.len} bytes; a batch takes at least {BATCH_HEADER_SIZE}")
            batch.p = <uint8_t *>view.buf
            batch.capacity = min(view.len, <Py_ssize_t>INT32_MAX)
            batch.target = batch.capacity if size_target is None else size_target
            batch.used = BATCH_HEADER_SIZE
            for chunk in self.chunks:
                if row >= chunk.start + chunk.array.length:
                    continue
                with nogil:
                    taken = table_encode(&chunk.rows, row - chunk.start, chunk.array.length, timestamp, &batch)
                row = chunk.start + taken
                if taken < chunk.array.length:
                    break
            if batch.record_count == 0:
                raise ValueError("no row was left, or none fits: check() comes first")
            header.base_timestamp = batch.base_timestamp
            header.max_timestamp = batch.max_timestamp
            header.producer_id = -1
            header.producer_epoch = -1
            header.base_sequence = -1
            header.leader_epoch = -1
            header.size = <int32_t>batch.used
            header.last_offset_delta = batch.record_count - 1
            header.record_count = batch.record_count
            with nogil:
                batch_header_write(batch.p, &header)
        finally:
            PyBuffer_Release(&view)
        return row, batch.used

"""Arrow's structs as somebody else filled them, looked at before they are believed.

What Arrow's C data interface forbids is a ValueError wherever it can be seen. It does not tell how large a buffer
is: that one is as large as its last offset says has to be believed, but for views, whose buffers tell. What it
leaves open, such as a name, may be missing.
"""

from libc.stdint cimport INT64_MAX, int64_t
from libc.string cimport strcmp

from kernels cimport arrow_array, arrow_schema, is_valid

cdef enum:
    BUFFERS_ANY = -1   # of nulls: some make one that nobody reads
    BUFFERS_VIEW = -2  # validity, views, any number of their own, the sizes of these
    ITEM_SIZE_MAX = 64  # bytes of an item of any buffer, or more: row numbers times it stay within 64 bits


cdef inline const char *name_of(arrow_schema *schema) noexcept nogil:
    """The name of a column, which may be NULL and is none then."""
    if schema.name == NULL:
        return b""
    return schema.name


cdef inline object taken_already(str what):
    """Capsules hold their structs until one consumer moved them out, or released them."""
    return ValueError(f"the {what} was taken already: it can be read once. Ask its source for another one")


cdef inline object malformed(arrow_schema *schema, str text):
    """``schema`` names the column; NULL for the table as a whole."""
    name = b"" if schema == NULL else name_of(schema)
    where = f"column {name.decode('utf-8', 'replace')}" if name else "the table"
    return ValueError(f"{where} is no valid Arrow data: {text}. Report it to whoever made it")


cdef inline int check_schema(arrow_schema *schema) except -1:
    """Its format can be read, and its children can be checked."""
    cdef int64_t i
    if schema.format == NULL:
        raise malformed(schema, "it has no type")
    if schema.n_children < 0 or (schema.n_children > 0 and schema.children == NULL):
        raise malformed(schema, f"{schema.n_children} children are nowhere")
    for i in range(schema.n_children):
        if schema.children[i] == NULL or schema.children[i].release == NULL:
            raise malformed(schema, f"its child {i} is not there, or was taken already")
        if schema.children[i].format == NULL:
            raise malformed(schema.children[i], "it has no type")
    return 0


cdef inline int check_array(arrow_array *array, arrow_schema *schema, arrow_array *parent,
                            int64_t buffer_count) except -1:
    """It is one of ``schema``, with ``buffer_count`` buffers, and has the rows that ``parent`` shows of it (NULL:
    it has no parent, or one whose offsets say which)."""
    cdef int64_t given = array.n_buffers
    if array.release == NULL:
        raise malformed(schema, "its array was taken already")
    if array.length < 0 or array.offset < 0 or array.length > INT64_MAX // ITEM_SIZE_MAX - array.offset:
        raise malformed(schema, f"{array.length} rows from {array.offset} on cannot be")
    if parent != NULL and array.length < parent.offset + parent.length:
        raise malformed(schema, f"it has {array.length} rows where {parent.offset + parent.length} are needed")
    if array.null_count < -1 or array.null_count > array.length:
        raise malformed(schema, f"{array.null_count} of {array.length} rows cannot be null")
    if array.dictionary != NULL:
        raise malformed(schema, "it has a dictionary, which its type does not say")
    if array.n_children != schema.n_children or (array.n_children > 0 and array.children == NULL):
        raise malformed(schema, f"it has {array.n_children} children; its type has {schema.n_children}")
    if buffer_count == BUFFERS_ANY:
        return 0
    if given != buffer_count if buffer_count >= 0 else given < 3:
        raise malformed(schema,
                        f"it has {given} buffers; its type has {buffer_count if buffer_count >= 0 else '3 or more'}")
    if array.buffers == NULL:
        raise malformed(schema, "its buffers are nowhere")
    if array.null_count > 0 and array.buffers[0] == NULL:
        raise malformed(schema, "it has nulls, and does not say which")
    return 0


cdef inline int check_child(arrow_array *array, arrow_schema *schema, int64_t number) except -1:
    """A child of a checked array is there."""
    if array.children[number] == NULL:
        raise malformed(schema.children[number], "its array is not there")
    return 0


cdef inline int check_buffer(arrow_array *array, arrow_schema *schema, int64_t number) except -1:
    """A buffer is there. One of no bytes may be NULL."""
    if array.length > 0 and array.buffers[number] == NULL:
        raise malformed(schema, f"buffer {number} is nowhere")
    return 0


cdef inline int check_root(arrow_array *array, arrow_schema *schema) except -1:
    """A struct of columns, no row of which is null as a whole: what its columns hold there would be records that
    nobody sent."""
    cdef bint found
    cdef int64_t i
    check_array(array, schema, NULL, 1)
    found = array.null_count > 0
    if array.null_count < 0 and array.buffers[0] != NULL:  # nobody counted
        with nogil:
            for i in range(array.offset, array.offset + array.length):
                if not is_valid(<const unsigned char *>array.buffers[0], i):
                    found = True
                    break
    if found:
        raise TypeError("a row of the table is null as a whole")
    for i in range(array.n_children):
        check_child(array, schema, i)
    return 0


cdef inline arrow_array *check_items(
    arrow_array *array, arrow_schema *schema, arrow_array *parent, int64_t buffer_count=2
) except NULL:
    """A list, of whose schema and its child's the caller made sure: validity, and ``buffer_count`` - 1 buffers that
    say where the items of a row are. Returns its items, whose columns are there, not looked at yet."""
    cdef arrow_schema *item = schema.children[0]
    cdef arrow_array *items
    cdef int64_t i
    check_array(array, schema, parent, buffer_count)
    for i in range(1, buffer_count):
        check_buffer(array, schema, i)
    check_child(array, schema, 0)
    items = array.children[0]
    if strcmp(item.format, b"+s") != 0:
        check_array(items, item, NULL, BUFFERS_ANY)
        return items
    check_array(items, item, NULL, 1)
    for i in range(item.n_children):
        check_child(items, item, i)
    return items

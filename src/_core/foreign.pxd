"""Checks of the Arrow C data structs that another library filled in, before they are read.

A violation of Arrow's C data interface is a ValueError if it can be detected. The interface does not tell
the size of a buffer, so the last offset must be trusted, except for view layouts, which list the sizes of
their buffers. Optional members, such as a name, may be missing.
"""

from libc.stdint cimport INT64_MAX, int64_t
from libc.string cimport strcmp

from kernels cimport arrow_array, arrow_schema, is_valid

cdef enum:
    BUFFERS_ANY = -1   # the null type: some libraries add a buffer without a use
    BUFFERS_VIEW = -2  # validity, views, any number of data buffers, the sizes of these
    # No item of a buffer has more bytes. A row number times this stays within 64 bits.
    ITEM_SIZE_MAX = 64


cdef inline const char *name_of(arrow_schema *schema) noexcept nogil:
    """Return the name of a column. NULL counts as an empty name."""
    if schema.name == NULL:
        return b""
    return schema.name


cdef inline object taken_already(str what):
    """Return the error for a capsule whose struct another consumer has moved out or released."""
    return ValueError(f"the {what} was taken already: it can be read once. Ask its source for another one")


cdef inline object malformed(arrow_schema *schema, str text):
    """Return the error for the column of ``schema``, or for the whole table if it is NULL."""
    name = b"" if schema == NULL else name_of(schema)
    where = f"column {name.decode('utf-8', 'replace')}" if name else "the table"
    return ValueError(f"{where} is no valid Arrow data: {text}. Report it to the author of the library that made it")


cdef inline int check_schema(arrow_schema *schema) except -1:
    """Check that the format of ``schema`` can be read, and that its children can be checked."""
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
    """Check that ``array`` fits ``schema``, has ``buffer_count`` buffers and all rows that ``parent`` uses.

    ``parent`` is NULL if there is none, or if its offsets select the rows.
    """
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
    """Check that a child of a checked array exists."""
    if array.children[number] == NULL:
        raise malformed(schema.children[number], "its array is not there")
    return 0


cdef inline int check_buffer(arrow_array *array, arrow_schema *schema, int64_t number) except -1:
    """Check that a buffer exists. It may be NULL if the array has no rows."""
    if array.length > 0 and array.buffers[number] == NULL:
        raise malformed(schema, f"buffer {number} is nowhere")
    return 0


cdef inline int check_root(arrow_array *array, arrow_schema *schema) except -1:
    """Check the struct of columns. No row may be null as a whole.

    The columns below such a row still hold values, which would become records that no producer sent.
    """
    cdef bint found
    cdef int64_t i
    check_array(array, schema, NULL, 1)
    found = array.null_count > 0
    if array.null_count < 0 and array.buffers[0] != NULL:  # not counted yet
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
    """Check a list and return its items, whose columns exist but are not checked yet.

    It has a validity buffer and ``buffer_count`` - 1 buffers with the positions of a row's items.
    REQUIRES that the schema of the list and of its child were checked.
    """
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

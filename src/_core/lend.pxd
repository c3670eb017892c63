"""Objects that are accepted as the bytes of a value, a key or the value of a header.

Each object with a contiguous buffer is accepted, unless its bytes would have no meaning for a reader.
"""

from cpython.buffer cimport PyBUF_CONTIG_RO, PyBUF_FORMAT, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.string cimport strchr


cdef inline bint has_pointers(const char *format) noexcept:
    """Return whether items of this format (PEP 3118 and the additions of ctypes) hold a memory address."""
    cdef const char *p = format
    while p != NULL and p[0] != 0:
        if p[0] == c":":  # the name of a field, up to the next one
            p = strchr(p + 1, c":")
            if p == NULL:
                return False
        elif p[0] == c"Z":  # wchar_t *, but Zf, Zd and Zg are complex numbers
            if p[1] == 0 or strchr(b"fdg", p[1]) == NULL:
                return True
            p += 1
        elif strchr(b"OP&Xz", p[0]) != NULL:
            return True
        p += 1
    return False


cdef inline int check_lent(object data, str what, const char *format, int ndim) except -1:
    """Raise TypeError for pointers, and for a single number or structure.

    A numpy or ctypes number has a buffer, but an int has none; both must be encoded by the caller.
    """
    if has_pointers(format):
        raise TypeError(
            f"a {what} is bytes, and a {type(data).__name__} of objects or pointers lends only their addresses:"
            " encode its content"
        )
    if ndim == 0:
        name = what.rpartition(" ")[2]
        raise TypeError(
            f"a {what} is bytes, not one {type(data).__name__}: encode it, for example str({name}).encode();"
            f" bytes({name}) is its memory, as "
            "only this kind of machine reads it"
        )
    return 0


cdef inline bint is_null_scalar(object data):
    """Return whether ``data`` is a null scalar of pyarrow, as an iterator over an array yields it."""
    return getattr(data, "is_valid", None) is False


cdef inline object refused(object data, str what, object error):
    """Return the error for an object whose buffer cannot be borrowed."""
    name = what.rpartition(" ")[2]
    return ValueError(
        f"a {what} that is a {type(data).__name__} lends no bytes ({error}): copy it, for example bytes({name})"
    )


cdef inline int borrow(object data, str what, Py_buffer *view) except -1:
    """Borrow the bytes of ``data`` in ``view``, which the caller must release.

    For a null scalar of Arrow the view is NULL with size -1. ``what`` names the object in errors.
    """
    cdef bint whole = True
    cdef int ndim
    if isinstance(data, str):
        raise TypeError(f"a {what} is bytes, not str: encode it, for example {what.rpartition(' ')[2]}.encode()")
    if type(data) is bytearray or type(data) is bytes:
        return PyObject_GetBuffer(data, view, PyBUF_SIMPLE)
    try:
        try:
            PyObject_GetBuffer(data, view, PyBUF_CONTIG_RO | PyBUF_FORMAT)
        except (BufferError, ValueError):  # numpy raises ValueError for datetime64
            PyObject_GetBuffer(data, view, PyBUF_SIMPLE)
            whole = False
    except TypeError:
        if not is_null_scalar(data):
            raise TypeError(f"a {what} is bytes, a contiguous buffer or None, not {type(data).__name__}") from None
        view.buf = NULL
        view.len = -1
        return 0
    except (BufferError, ValueError) as error:
        if not is_null_scalar(data):
            raise refused(data, what, error) from None
        view.buf = NULL
        view.len = -1
        return 0
    try:
        if not whole and getattr(getattr(data, "dtype", None), "hasobject", False):
            check_lent(data, what, b"O", 1)
        ndim = view.ndim if whole else 1
        if ndim > 0 and type(data) is not memoryview:
            # A datetime64 scalar of numpy has a buffer of eight bytes with one dimension. Its own
            # attribute `ndim` is 0, as that of each numpy scalar.
            told = getattr(data, "ndim", None)
            if type(told) is int and told == 0:
                ndim = 0
        check_lent(data, what, view.format, ndim)
    except BaseException:
        PyBuffer_Release(view)
        raise
    return 0

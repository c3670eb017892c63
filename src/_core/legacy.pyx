# distutils: sources = src/_core/kernels/legacy.c
"""Messages of magic 0 and 1: find their fields. ``record/legacy.py`` reads the contents."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t

from kernels cimport check, legacy_begins, legacy_message, legacy_read


def legacy_messages(data, Py_ssize_t position=0):
    """Return the complete messages of magic 0 and 1 from ``position`` on, and the position after the last one.

    Raises CorruptError if the first message is malformed; a later malformed one ends the list.
    """
    cdef Py_buffer view
    cdef legacy_message m
    cdef const uint8_t *start
    cdef const uint8_t *end
    cdef const uint8_t *p
    cdef int status
    cdef list found = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t *>view.buf
        end = start + view.len
        if not 0 <= position <= view.len:
            raise ValueError(f"position {position} is not within {view.len} bytes")
        p = start + position
        while legacy_begins(p, end):
            status = legacy_read(p, end, &m)
            if status == 0:
                break
            if status < 0:
                if not found:
                    check(status, p - start)
                break
            found.append((
                m.offset, m.timestamp, m.magic, m.attributes, m.size,
                -1 if m.key == NULL else m.key - start, m.key_size,
                -1 if m.value == NULL else m.value - start, m.value_size,
            ))
            p += m.size
        return found, p - start
    finally:
        PyBuffer_Release(&view)

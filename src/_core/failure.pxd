"""Turn the exception that is set into a C string, for callers that cannot receive an exception.

The exception is handled with the C API: a ``try`` needs memory for its handler, and if that allocation
fails too, a function that must not raise returns 0, which means success.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.exc cimport PyErr_SetInterrupt
from cpython.ref cimport PyObject
from libc.string cimport strdup


cdef extern from "Python.h":
    void PyErr_Clear()
    void PyErr_Fetch(PyObject **kind, PyObject **value, PyObject **trace)
    void PyErr_NormalizeException(PyObject **kind, PyObject **value, PyObject **trace)
    bint PyErr_GivenExceptionMatches(PyObject *given, PyObject *kind)
    void Py_XDECREF(PyObject *one)
    PyObject *KEYBOARD_INTERRUPT "PyExc_KeyboardInterrupt"


cdef inline bytes _text_of(PyObject *kind, PyObject *value):
    """Return the error as text, or only the name of its type if ``value`` is NULL."""
    name = (<object>kind).__name__
    return (name if value == NULL else f"{name}: {<object>value}").encode("utf-8", "replace")


cdef inline PyObject *_text_or_null(PyObject *kind, PyObject *value) noexcept:
    """Return what :func:`_text_of` does as a new reference, or NULL if that raises."""
    cdef PyObject *text = (<PyObject *(*)(PyObject *, PyObject *) noexcept>_text_of)(kind, value)
    if text == NULL:
        PyErr_Clear()
    return text


cdef inline char *words_of_error() noexcept:
    """Clear the exception that is set and return its text, which the caller must free.

    Return NULL if no exception is set or no memory is left. A KeyboardInterrupt is requested again.
    """
    cdef PyObject *kind = NULL
    cdef PyObject *value = NULL
    cdef PyObject *trace = NULL
    cdef PyObject *text
    cdef char *words = NULL
    PyErr_Fetch(&kind, &value, &trace)
    if kind == NULL:
        return NULL
    PyErr_NormalizeException(&kind, &value, &trace)
    if PyErr_GivenExceptionMatches(kind, KEYBOARD_INTERRUPT):
        PyErr_SetInterrupt()
    text = _text_or_null(kind, value)
    if text == NULL:
        text = _text_or_null(kind, NULL)
    if text != NULL:
        words = strdup(PyBytes_AS_STRING(<object>text))
    Py_XDECREF(text)
    Py_XDECREF(kind)
    Py_XDECREF(value)
    Py_XDECREF(trace)
    return words

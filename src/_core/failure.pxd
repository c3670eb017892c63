"""The error that is set, put into words for who cannot take an exception.

Met as C meets it: a try needs memory for its handler, and where even that fails, a function that may not raise
answers 0, which says that all is well.
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
    """An error in words; without ``value`` only what it is called."""
    name = (<object>kind).__name__
    return (name if value == NULL else f"{name}: {<object>value}").encode("utf-8", "replace")


cdef inline PyObject *_text_or_null(PyObject *kind, PyObject *value) noexcept:
    """The same, owned; NULL where it cannot be made."""
    cdef PyObject *text = (<PyObject *(*)(PyObject *, PyObject *) noexcept>_text_of)(kind, value)
    if text == NULL:
        PyErr_Clear()
    return text


cdef inline char *words_of_error() noexcept:
    """The words of the error that is set, which is set no more: to be freed, NULL where there are none. Ctrl-C is
    on its way again."""
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

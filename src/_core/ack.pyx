"""Ack: one record's acknowledgement. Made once per call, so it holds two fields and asks its outcome for everything else."""

cimport cython


@cython.final
@cython.freelist(1024)
cdef class Ack:
    """A handle on one record's acknowledgement. Thread-safe: it never changes, and its outcome guards itself."""

    cdef object _outcome
    cdef Py_ssize_t _index

    def __cinit__(self, outcome not None, Py_ssize_t index):
        self._outcome = outcome
        self._index = index

    def result(self, timeout=None):
        """Wait for it. Raises what went wrong, TimeoutError after ``timeout`` seconds."""
        self._outcome.wait(timeout)
        return self._metadata()

    def done(self):
        """Whether it is known how it ended."""
        return self._outcome.settled

    def exception(self, timeout=None):
        """Wait for it; what went wrong, or None."""
        self._outcome.wait(timeout)
        return self._outcome.error

    @property
    def offset(self):
        """The record's offset once known, else None. Never waits."""
        if not self._outcome.settled or self._outcome.error is not None:
            return None
        return self._outcome.metadata(self._index).offset

    def __await__(self):
        """The same as :meth:`result` without a timeout, for coroutines."""
        if not self._outcome.settled:
            yield from self._outcome.future().__await__()
        return self._metadata()

    def __repr__(self):
        if not self._outcome.settled:
            return "<Ack pending>"
        error = self._outcome.error
        return f"<Ack offset={self.offset}>" if error is None else f"<Ack failed: {error!r}>"

    cdef object _metadata(self):
        error = self._outcome.error
        if error is not None:
            raise error
        return self._outcome.metadata(self._index)

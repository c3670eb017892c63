"""A pipe that a thread writes and the caller reads: for a library that writes a whole stream in one call.

The bytes that the reader gets do not depend on the thread's timing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable
from typing import Final

from pyreplog.errors import NoThreadError, PyreplogError, StorageError, is_interruption

__all__ = ["Pipe"]

_SIZE: Final = 1 << 20


class Pipe:
    """Bytes that ``write(path)`` writes into the pipe ``path``, in a thread. Once the reader closes the pipe, the
    next write fails, and the thread ends. One thread reads.

    ``write`` must close its file before it returns or raises. Raises :class:`StorageError` without descriptors,
    :class:`NoThreadError`.
    """

    def __init__(self, write: Callable[[str], object], what: str) -> None:
        """``what`` is the purpose of the pipe in words, such as "to unpack a batch"."""
        self._write = write
        self._what = what
        self._error: BaseException | None = None
        try:
            self._read_end, self._write_end = os.pipe()
        except OSError as error:
            raise StorageError.from_os_error(error, f"making a pipe {what}", "pipe") from error
        self._thread = threading.Thread(target=self._run, name="pyreplog pipe", daemon=True)
        try:
            with contextlib.suppress(OSError):  # the system's limit is lower: the pipe keeps its size
                fcntl.fcntl(self._write_end, fcntl.F_SETPIPE_SZ, _SIZE)
            self._thread.start()
        except BaseException as error:
            is_running = self._thread.ident is not None
            if not is_running:
                os.close(self._write_end)
            self.close()
            if isinstance(error, RuntimeError) and not is_running and not is_interruption(error):
                raise NoThreadError(what) from error
            raise

    def _run(self) -> None:
        try:
            self._write(f"/proc/self/fd/{self._write_end}")
        except (PyreplogError, OSError, MemoryError) as error:
            self._error = error  # for the reader, unless it closed the pipe
        finally:
            os.close(self._write_end)

    def readinto(self, room: memoryview) -> int:
        """Fill the beginning of ``room``; the number of bytes, 0 at the end. Raises what ``write`` raised behind
        the bytes it wrote."""
        got = os.readv(self._read_end, [room])
        if got:
            return got
        self._thread.join()
        if isinstance(self._error, OSError) and not isinstance(self._error, StorageError):
            raise StorageError.from_os_error(self._error, f"writing a pipe {self._what}", "pipe")
        if self._error is not None:
            raise self._error
        return 0

    def close(self) -> None:
        """Give up the rest. Twice is harmless."""
        if self._read_end >= 0:
            end, self._read_end = self._read_end, -1
            os.close(end)

"""Unpacked: a file that was written by gzip, as the bytes that are in it."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import IO

from pyreplog.cli.rows import RowError

__all__ = ["Unpacked"]


class Unpacked:
    """What :class:`~pyreplog.cli.rows.Lines` reads of a packed file, in pieces: memory is bounded by the longest
    line, not by the file."""

    def __init__(self, stream: IO[bytes], tell: Callable[[int], None] | None = None) -> None:
        """The caller closes ``stream``. ``tell`` is called with the number of packed bytes that were used."""
        self._stream = stream
        self._unpacked = gzip.GzipFile(fileobj=stream, mode="rb")
        self._tell = tell
        self._told = 0

    def read1(self, size: int, /) -> bytes:
        """The next bytes, at most ``size``; empty at the end. Raises :class:`RowError` if the file is no gzip,
        damaged, or cut short."""
        try:
            piece = self._unpacked.read1(size)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise RowError(f"not gzip, or damaged: {error}") from None
        if self._tell is not None and self._stream.seekable():
            position = self._stream.tell()
            self._tell(position - self._told)
            self._told = position
        return piece

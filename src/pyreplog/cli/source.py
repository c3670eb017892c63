"""Source: a file that is imported, row by row, and how much of it these rows were."""

from __future__ import annotations

import argparse
import itertools
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, Final

from pyreplog.cli.parquet import read_parquet
from pyreplog.cli.rows import (
    LINE_SIZE_MAX,
    PARQUET,
    Lines,
    Row,
    RowError,
    check_style,
    fields_of,
    form_of,
    guessed,
    is_gzip,
    read_rows,
    style_of,
)
from pyreplog.cli.unpacked import Unpacked
from pyreplog.errors import ConfigError
from pyreplog.record import crc32c

__all__ = ["Source", "check_sources"]

_PIECE_SIZE: Final = 1 << 20


def check_sources(names: Iterable[str], *, again: bool = False) -> int:
    """Return the size in bytes of the files ``names`` without ``-``. A misspelt name must not make a log: raise
    OSError if a file is missing, :class:`ConfigError` for a folder, and, if the files must be read ``again`` later,
    also for a file that can be read only once."""
    size = 0
    for name in names:
        if name != "-":
            status = os.stat(name)
            if stat.S_ISDIR(status.st_mode):
                raise ConfigError(f"{name} is a folder: name the files in it that hold rows")
            if again and not stat.S_ISREG(status.st_mode):
                raise ConfigError(
                    f"--resume needs plain files, and {name} is none: what came through it cannot be read again"
                )
            if again and is_gzip(name):
                raise ConfigError(
                    f"--resume counts bytes of plain files, and {name} is packed: unpack it with `gunzip -k {name}`"
                )
            size += status.st_size
        elif again:
            raise ConfigError("--resume needs files: what came on standard input cannot be read again")
    return size


class Source:
    """The file ``name`` (``-``: standard input), read by the options. Use it with ``with``. ``tell`` is called with
    the number of bytes that were used."""

    def __init__(self, name: str, arguments: argparse.Namespace, tell: Callable[[int], None]) -> None:
        self.name = name
        self.path = os.path.abspath(name)
        self.form: str = arguments.format or form_of(name)
        self._guessed = guessed(name, arguments.format)
        self._fields = fields_of(arguments)
        self._style = style_of(arguments)
        self._tell = tell
        #: What makes rows of the same bytes other ones. A style that is not given is left out, as
        #: it was before there were styles.
        self.how: tuple[str | None, ...] = (self.form, *self._fields, *(self._style if any(self._style) else ()))
        #: So many bytes from the beginning are the rows that were given so far. Of Parquet, whose
        #: end is needed first, always all.
        self.end = 0
        #: Bytes of a line, at most.
        self.line_size_max = LINE_SIZE_MAX
        #: Rows that were read before :meth:`rows` is called, which gives them again.
        self._begun: Iterator[Row] | None = None
        self._stream: IO[bytes] | None = None
        self._status: os.stat_result | None = None

    def __enter__(self) -> Source:
        if self.name != "-" and self._stream is None:
            self._stream = open(self.name, "rb")
            self._status = os.fstat(self._stream.fileno())
            if self.form == PARQUET:
                self.end = self._status.st_size
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def peek(self) -> Row | None:
        """Return the first row, which :meth:`rows` returns again; None if there is none."""
        rows = self._read()
        first = next(rows, None)
        self._begun = rows if first is None else itertools.chain([first], rows)
        return first

    def rows(self) -> Iterator[Row]:
        """Its rows, once. Raises :class:`RowError` that names the file."""
        return self._read() if self._begun is None else self._begun

    def _read(self) -> Iterator[Row]:
        try:
            if self.form == PARQUET:
                if self._stream is None:
                    raise RowError("Parquet is read from a file, not from standard input")
                check_style(self.form, self._style)
                if self._status is not None and not stat.S_ISREG(self._status.st_mode):
                    raise RowError("Parquet is read from its end, and this is a pipe: write it to a file first")
                if is_gzip(self.name):
                    raise RowError(
                        "Parquet is packed inside, and read from its end: unpack the file first with `gunzip`"
                    )
                yield from read_parquet(self.name, self._fields, self._tell)
                return
            stream: Any = sys.stdin.buffer if self._stream is None else self._stream
            if is_gzip(self.name):
                lines = Lines(Unpacked(stream, self._tell), size_max=self.line_size_max)
            else:
                lines = Lines(stream, self._tell, self.line_size_max)
            for row in read_rows(lines, self.form, self._fields, self._style):
                self.end = lines.size
                yield row
            self.end = lines.size
        except RowError as error:
            raise self.named(error, self._guessed) from None

    def named(self, error: RowError, hint: str = "") -> RowError:
        """Return ``error`` with the name of this file ahead of it."""
        return RowError(f"{'standard input' if self.name == '-' else self.name}: {error}{hint}")

    # -- comparing with an earlier read --

    @property
    def mtime_ns(self) -> int:
        """When it was changed last before its reading began."""
        return self._file()[1].st_mtime_ns

    @property
    def size(self) -> int:
        """How large it is now."""
        return os.fstat(self._file()[0]).st_size

    def check_unchanged(self) -> None:
        """Raise :class:`RowError` if a Parquet file has changed since its reading began, because it is read from
        both ends. A file that is read line by line may grow."""
        before, now = self._file()[1], os.stat(self.name)
        if self.form == PARQUET and any(
            getattr(before, name) != getattr(now, name) for name in ("st_dev", "st_ino", "st_size", "st_mtime_ns")
        ):
            raise RowError(f"{self.name} was changed while it was imported")

    def crc(self, start: int, end: int, value: int = 0) -> int | None:
        """Return the CRC-32C of the bytes from ``start`` to ``end``, continued from ``value``; None if the file
        ends before."""
        descriptor = self._file()[0]
        while start < end:
            piece = os.pread(descriptor, min(_PIECE_SIZE, end - start), start)
            if not piece:
                return None
            value = crc32c(piece, value)
            start += len(piece)
        return value

    def divides(self, end: int) -> bool:
        """Whether no row lies on both sides of ``end``, or could: whether there is nothing on one side, or a line's
        end between them."""
        descriptor = self._file()[0]
        beside = os.pread(descriptor, 2, end - 1) if end else b""
        return len(beside) < 2 or b"\n" in beside

    def _file(self) -> tuple[int, os.stat_result]:
        assert self._stream is not None, "a file, and entered"
        assert self._status is not None, "a file, and entered"
        return self._stream.fileno(), self._status

"""A plugin of nbdkit, run in a Python of its own: a disk in the file ``img=`` that notes each write and each flush
in ``log=``."""

from __future__ import annotations

import os
import struct

import nbdkit  # type: ignore[import-not-found]

API_VERSION = 2
_names: dict[str, str] = {}


def config(key: str, value: str) -> None:
    """``img=FILE`` and ``log=FILE``."""
    _names[key] = value


def thread_model() -> int:
    """One request at a time: what was answered before a flush is covered by it."""
    return int(nbdkit.THREAD_MODEL_SERIALIZE_ALL_REQUESTS)


def open(readonly: bool) -> tuple[int, int]:
    """The disk, and its log to append to."""
    return os.open(_names["img"], os.O_RDWR), os.open(_names["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def close(handle: tuple[int, int]) -> None:
    """Both."""
    for descriptor in handle:
        os.close(descriptor)


def get_size(handle: tuple[int, int]) -> int:
    """Of the disk, in bytes."""
    return os.fstat(handle[0]).st_size


def can_write(handle: tuple[int, int]) -> bool:
    """It can."""
    return True


def can_flush(handle: tuple[int, int]) -> bool:
    """It can, so that every sync of the file system on it is seen."""
    return True


def pread(handle: tuple[int, int], buffer: memoryview, offset: int, flags: int) -> None:
    """As the file has it."""
    os.preadv(handle[0], [buffer], offset)


def pwrite(handle: tuple[int, int], buffer: memoryview, offset: int, flags: int) -> None:
    """Noted, then done."""
    os.write(handle[1], struct.pack("<cQQ", b"W", offset, len(buffer)) + bytes(buffer))
    os.pwrite(handle[0], buffer, offset)


def flush(handle: tuple[int, int], flags: int) -> None:
    """Noted: what was written before is durable now."""
    os.write(handle[1], struct.pack("<cQQ", b"S", 0, 0))

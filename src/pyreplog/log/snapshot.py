"""Small files that are replaced as a whole: write a temporary file, sync it, rename it, sync the folder.

There are two kinds. Kafka's text checkpoints have no checksum, so their readers must tolerate a wrong value that
looks right. Our own state files are ``name: value`` lines; the last line is a CRC-32C of the lines before it, and a
file with a wrong checksum is ignored. Formats: docs/internals/format/checkpoints.md, state_files.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from pyreplog._core import crc32c
from pyreplog.errors import CorruptError, StorageError, excerpt
from pyreplog.log.layout import INT32_MAX, INT64_MAX, STATE_FILE_SIZE_MAX, TEMPORARY_SUFFIX, parent_of
from pyreplog.log.reserve import with_reserve
from pyreplog.ports import Disk, File
from pyreplog.values import TopicPartition

_VERSION: Final = "0"  # version of Kafka's checkpoints. On disk: never change
_CRC_NAME: Final = "crc32c"
_DIGITS_MAX: Final = 20


def read_whole(disk: Disk, path: str, size_max: int = STATE_FILE_SIZE_MAX) -> bytes | None:
    """Return the content of a small file, or None if it does not exist. Raises :class:`CorruptError` if it has more
    than ``size_max`` bytes."""
    return None if disk.stat(path) is None else read_there(disk, path, "a state file", size_max)


def read_there(disk: Disk, path: str, what: str, size_max: int = STATE_FILE_SIZE_MAX) -> bytes:
    """Return the content of an existing file as :func:`read_whole` does. Errors call the file ``what``."""
    file = disk.open(path)
    try:
        size = file.size()
        if size > size_max:
            raise CorruptError(f"{size} bytes: too large for {what}", file=path)
        return bytes(file.read_at(0, size))
    finally:
        file.close()


def begin_file(disk: Disk, path: str, parts: Iterable[bytes | memoryview]) -> File:
    """Create the file at ``path`` with ``parts`` and return it open, not synced. An existing file is replaced.

    If this raises, the file is closed and may hold a part of the content.
    """
    if disk.stat(path) is not None:
        disk.remove(path)
    file = disk.create(path)
    position = 0
    try:
        for part in parts:
            file.write_at(position, [part])
            position += len(part)
    except BaseException:
        with suppress(StorageError):  # the error of the write says more
            file.close()
        raise
    return file


def remove_file(disk: Disk, file: File) -> bool:
    """Close and remove ``file``, which :func:`begin_file` created. Return True."""
    file.close()
    disk.remove(file.path)
    return True


def replace_file(
    disk: Disk, path: str, content: bytes, *, durable: bool = True, reserve_in: str = "", named: bool = True
) -> None:
    """Replace the content of ``path`` by ``content``. After a crash the file has the old content or the new one.

    ``durable=False`` leaves out the syncs, so after power loss the file may also be empty or torn. Use it only for
    content that can be rebuilt. ``reserve_in``: the folder whose reserve may be used if the disk is full; "" for
    none. REQUIRES that no other process writes in that folder. ``named=False`` leaves out the sync of the folder: until
    the caller syncs it, power loss may bring the old content back.
    """
    temporary = path + TEMPORARY_SUFFIX

    is_new: bool | None = None  # unknown until the disk was full once

    def put() -> None:
        nonlocal is_new
        is_new = False if is_new is None else disk.stat(path) is None
        file = begin_file(disk, temporary, [content])
        try:
            if durable:
                file.sync()
        finally:
            file.close()
        disk.rename(temporary, path)

    def unmake(_: None) -> bool:
        if is_new:
            disk.remove(path)
        return bool(is_new)

    if reserve_in:
        with_reserve(disk, reserve_in, put, unmake)
    else:
        put()
    if durable and named:
        disk.sync_directory(parent_of(path))


def put_files(disk: Disk, contents: Sequence[tuple[str, bytes]]) -> None:
    """Create each path with its content, durably as by :func:`replace_file`; the syncs run side by side.

    The caller syncs the folders. REQUIRES that none of the files exists.
    """
    files: list[File] = []
    try:
        for path, content in contents:
            files.append(disk.create(path + TEMPORARY_SUFFIX))
            files[-1].write_at(0, [content])
        disk.map(lambda file: file.sync(), files, waits=True)
    finally:
        for file in files:
            file.close()
    for path, _ in contents:
        disk.rename(path + TEMPORARY_SUFFIX, path)


def parse_number(text: str, low: int, high: int) -> int:
    """Return the decimal number ``text`` (ASCII digits and a minus). Raises ValueError if it is not within ``low``
    to ``high``."""
    digits = text[1:] if text.startswith("-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _DIGITS_MAX:
        raise ValueError(f"{excerpt(text)} is not a number")
    value = int(text)
    if not low <= value <= high:
        raise ValueError(f"{value} is outside {low} to {high}")
    return value


def parse_entries(content: bytes, field_count: int, path: str) -> list[list[str]]:
    """Return the entries of one of Kafka's checkpoint files, each of ``field_count`` fields. An empty file has
    none."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptError("not UTF-8", file=path, position=error.start) from None
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    if not lines:
        return []
    if lines[0].strip() != _VERSION:
        raise CorruptError(f"checkpoint version is {excerpt(lines[0])}, expected {_VERSION}", file=path, position=0)
    if len(lines) == 1:
        return []
    try:
        count = parse_number(lines[1].strip(), 0, INT32_MAX)
    except ValueError as error:
        raise CorruptError(f"entry count: {error}", file=path) from None
    entries = [line.split() for line in lines[2:]]
    if len(entries) != count:
        raise CorruptError(f"{len(entries)} entries, expected {count}", file=path)
    for number, fields in enumerate(entries, 1):
        if len(fields) != field_count:
            raise CorruptError(f"entry {number} has {len(fields)} fields, expected {field_count}", file=path)
    return entries


def format_entries(entries: Iterable[Iterable[object]]) -> bytes:
    """Return the content of a checkpoint file as Kafka writes it."""
    lines = [" ".join(str(field) for field in entry) for entry in entries]
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def parse_offsets(content: bytes, path: str) -> dict[TopicPartition, int]:
    """Return the offsets in an offset checkpoint of ``<topic> <partition> <offset>`` lines. If a partition has two
    lines, the later counts, as in Kafka."""
    offsets: dict[TopicPartition, int] = {}
    for topic, partition, offset in parse_entries(content, 3, path):
        try:
            key = TopicPartition(topic, parse_number(partition, 0, INT32_MAX))
            offsets[key] = parse_number(offset, -1, INT64_MAX)
        except ValueError as error:
            raise CorruptError(str(error), file=path) from None
    return offsets


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Return the offset checkpoint at ``path``, empty if there is none. Raises :class:`CorruptError` if the content
    is no checkpoint."""
    content = read_whole(disk, path)
    return {} if content is None else parse_offsets(content, path)


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the offset checkpoint at ``path``, durably. REQUIRES every hosted partition in ``offsets``, because a
    missing partition counts as 0."""
    content = format_entries((key.topic, key.partition, offset) for key, offset in sorted(offsets.items()))
    replace_file(disk, path, content, reserve_in=parent_of(path))


def format_state(values: Mapping[str, str]) -> bytes:
    """Return the content of a state file: sorted ``name: value`` lines and their checksum. REQUIRES no line breaks,
    and no colon in names."""
    body = "".join(f"{name}: {value}\n" for name, value in sorted(values.items())).encode()
    return body + f"{_CRC_NAME}: {crc32c(body):08x}\n".encode()


def parse_state(content: bytes, path: str) -> dict[str, str]:
    """Return the values of a state file. Raises :class:`CorruptError` if its checksum is wrong."""
    body, newline, last = content[:-1].rpartition(b"\n")
    body += newline
    if not content.endswith(b"\n") or last != f"{_CRC_NAME}: {crc32c(body):08x}".encode():
        raise CorruptError("checksum mismatch", file=path)
    values: dict[str, str] = {}
    try:
        lines = body.decode("utf-8").split("\n")[:-1]
    except UnicodeDecodeError as error:
        raise CorruptError("not UTF-8", file=path, position=error.start) from None
    for line in lines:
        name, _, value = line.partition(": ")
        values[name] = value
    return values


def read_state(disk: Disk, path: str) -> dict[str, str] | None:
    """Return the values of the state file at ``path``, or None if there is none. Raises :class:`CorruptError` if it
    is damaged."""
    content = read_whole(disk, path)
    return None if content is None else parse_state(content, path)


def write_state(disk: Disk, path: str, values: Mapping[str, str], *, reserve_in: str = "") -> None:
    """Replace the state file at ``path``, durably. ``reserve_in``: as in :func:`replace_file`."""
    replace_file(disk, path, format_state(values), reserve_in=reserve_in)

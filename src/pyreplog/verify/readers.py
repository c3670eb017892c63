"""The files of named readers: ``replog.offsets-<name>``, in a root, a cluster's folder or a folder of the caller."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from crc32c import crc32c

from pyreplog.ports import Disk
from pyreplog.verify.findings import Report
from pyreplog.verify.folder import read_file
from pyreplog.verify.states import Unreadable

PREFIX: Final = "replog.offsets-"
_HEADER_SIZE: Final = 512
_SIZE: Final = 64
_KINDS: Final = {1: "commit", 2: "attempt"}


class ReaderEntry(NamedTuple):
    """One entry. ``topic_id`` is "" if the log had none."""

    kind: str
    topic_id: str
    partition: int
    offset: int
    leader_epoch: int
    attempts: int
    time_ms: int


class ReaderFile(NamedTuple):
    """The content of a file: (position, entry or the reason why there is none), in order."""

    name: str
    holder: str
    entries: list[tuple[int, ReaderEntry | Unreadable]]


def reader_file(data: bytes) -> ReaderFile:
    """Parse a file of offsets. Raises Unreadable if the header is damaged."""
    head = data[:264]
    if len(data) < _HEADER_SIZE or not any(head):
        if any(data[_HEADER_SIZE:]):
            raise Unreadable("its header is empty")
        return ReaderFile("", "", [])
    if head[:4] != b"RLOF":
        raise Unreadable("it does not begin with RLOF")
    version, size, crc = struct.unpack_from(">HHI", head, 4)
    if crc != crc32c(head[16:216], crc32c(head[:8])) or size > 200:
        raise Unreadable("the checksum of its header is wrong")
    if version != 1:
        raise Unreadable(f"its version is {version}, and only 1 is known")
    name = head[16 : 16 + size].decode("ascii", "replace")
    holder = data[264:_HEADER_SIZE].rstrip(b"\0").decode("utf-8", "replace")
    found = [(at, _entry(data[at : at + _SIZE])) for at in range(_HEADER_SIZE, len(data), _SIZE)]
    return ReaderFile(name, holder, found)


def _entry(data: bytes) -> ReaderEntry | Unreadable:
    if len(data) < _SIZE:
        return Unreadable(f"{len(data)} bytes behind the last whole entry")
    if struct.unpack_from(">I", data, 60)[0] != crc32c(data[:60]):
        return Unreadable("the checksum of an entry is wrong")
    kind = data[0]
    partition, topic_id, offset, epoch, attempts, time_ms = struct.unpack_from(">i16sqiiq", data, 4)
    if kind not in _KINDS or partition < 0 or offset < 0 or epoch < -1:
        return Unreadable(f"an entry of kind {kind} with partition {partition}, offset {offset}, epoch {epoch}")
    text = base64.urlsafe_b64encode(topic_id).decode().rstrip("=") if any(topic_id) else ""
    return ReaderEntry(_KINDS[kind], text, partition, offset, epoch, attempts, time_ms)


def check_readers(disk: Disk, path: str, names: Iterable[str], book: Report) -> None:
    """Verify the readers' files among ``names``, the files of the folder ``path``.

    A reader may be writing its file now, and a kill leaves a torn entry at the end, so that is only noted. Damage costs
    nothing but records that are read again.
    """
    for name in names:
        if not name.startswith(PREFIX) or name.endswith("~"):
            continue
        file = f"{path}/{name}"
        try:
            data = read_file(disk, file, book)
            entries = [] if data is None else reader_file(data).entries
        except Unreadable as error:
            book.warn(file, f"damaged: {error}", "put it back from a copy, or remove it: its reader then begins again")
            continue
        last = max((at for at, entry in entries if isinstance(entry, ReaderEntry)), default=0)
        for at, entry in entries:
            if isinstance(entry, Unreadable):
                if at > last:
                    book.note(file, f"a torn entry at its end: {entry}", "nothing to do: its next reader cuts it")
                    break
                advice = "nothing to do: its reader may read some records again"
                book.warn(file, f"damaged: {entry}", advice, position=at)

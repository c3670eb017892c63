"""The journal of a queue with other content: a worker opens it or says why not, and verify agrees."""

from __future__ import annotations

from random import Random
from typing import Final

from crc32c import crc32c

from pyreplog.errors import CorruptError, PyreplogError
from pyreplog.readers import (
    QUEUE_FILE_SIZE,
    QUEUE_PREFIX,
    QueueJournal,
    QueueState,
    Released,
    queue_file_name,
    read_queue,
    reader_name_of,
    runs_of,
)
from pyreplog.readers.queue_entries import decode_entry
from pyreplog.testing import SimDisk
from pyreplog.verify.findings import Report
from pyreplog.verify.queues import check_queues
from pyreplog.verify.show import small_file
from tests.faults.fuzz.target import Target
from tests.interop.golden.formats import HERE, QUEUE, QUEUE_PARTS

_NAME: Final = "replog.queue-workers"
_SEED: Final = crc32c((1).to_bytes(8, "big") + (HERE / "queue" / "slot").read_bytes()[16:32])
_KINDS: Final = 6
_ENTRY, _AREA, _SLOT, _BLOCK, _BARE, _FILE_NAME = range(_KINDS)


def _part(name: str) -> bytes:
    return (HERE / "queue" / name).read_bytes()


def _bodies(area: bytes) -> list[bytes]:
    found, position = [], 0
    while position + 8 < len(area):
        size = int.from_bytes(area[position : position + 4], "big")
        found.append(area[position + 8 : position + 8 + size])
        position += 8 + size
    return found


def _seeds() -> list[bytes]:
    area = _part("area")
    return [
        *[bytes([_ENTRY]) + body for body in _bodies(area)],
        bytes([_AREA]) + area,
        bytes([_SLOT]) + _part("slot"),
        bytes([_BLOCK]) + _part("name"),
        bytes([_BARE]) + b"RLQN",
        bytes([_FILE_NAME]) + _NAME.encode(),
        bytes([_FILE_NAME]) + b"replog.queue-a%b",
    ]


def _seal(data: bytes, chance: Random) -> bytes:
    """Most of the time: the checksums set right."""
    if not data or chance.random() < 0.25:
        return data
    if data[0] % _KINDS == _AREA:
        out, chain = bytearray(data[:1]), _SEED
        for body in _bodies(data[1:]):
            size = len(body).to_bytes(4, "big")
            chain = crc32c(size + body, chain)
            out += size + chain.to_bytes(4, "big") + body
        return bytes(out)
    if data[0] % _KINDS != _ENTRY and len(data) > 5:
        return data[:-4] + crc32c(data[1:-4]).to_bytes(4, "big")
    return data


def _run(data: bytes) -> object:
    if not data:
        return None
    kind, content = data[0] % _KINDS, data[1:]
    if kind == _ENTRY:
        entry = decode_entry(content)
        QueueState().apply(entry)
        return type(entry).__name__
    if kind == _FILE_NAME:
        name = reader_name_of(content.decode("utf-8", "replace"), QUEUE_PREFIX)
        assert name is None or queue_file_name(name).encode() == content
        return name is None
    parts = {name: _part(name) for name in QUEUE_PARTS}
    parts[("area", "slot", "name", "name")[kind - 1]] = content
    if kind == _BARE:
        parts["slot"] = b""
    disk = SimDisk(Random(1))
    disk.make_directory("root")
    file = disk.create(f"root/{_NAME}")
    file.write_at(0, [bytes(QUEUE_FILE_SIZE)])
    for name, (start, _) in QUEUE_PARTS.items():
        file.write_at(start, [parts[name]])
    book = Report()
    check_queues(disk, "root", [_NAME], book)
    rows = list(small_file(_NAME, bytes(file.read_at(0, QUEUE_FILE_SIZE))))
    file.close()
    try:
        _, state = read_queue(disk, f"root/{_NAME}")
    except CorruptError:
        assert book.findings, "verify must see what a worker refuses"
    else:
        assert rows[0]["next_offset"] == state.next_offset, "verify must see the same state"
        assert rows[0]["acquired"] == len(state.acquired)
        assert rows[0]["available"] == len(state.available)
    journal = QueueJournal.open(disk, f"root/{_NAME}", QUEUE, is_sync=True)
    with journal as state:
        held = state.held_by(journal.worker)
        if held:
            journal.append(Released(runs_of(held)))
    return kind, len(book.findings), state.in_flight


QUEUES: Final = Target("queue", _seeds, _run, (PyreplogError,), 2, _seal)

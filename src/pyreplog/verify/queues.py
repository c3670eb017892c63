"""The journal of a queue: its slots, its name, and the entries of the area in use.

It is read here from the format's page alone. Offsets are kept as single numbers, because at most 2,000 are in flight.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from pyreplog.ports import Disk
from pyreplog.verify.findings import Report
from pyreplog.verify.folder import read_file
from pyreplog.verify.states import Unreadable, uuid_text

QUEUE: Final = "replog.queue-"
_SLOTS: Final = (0, 512)
_SLOT: Final = struct.Struct(">4sHHQ16si16sI")
_NAME: Final = 1024
_AREAS: Final = (4096, 135168)
_AREA_SIZE: Final = 131072
_FILE_SIZE: Final = 266240
"""A shorter file without a slot and a name is one whose first worker was interrupted."""
_IN_FLIGHT_MAX: Final = 2000
_REJECTED: Final = 0x8000
_AGAIN: Final = "remove the file to deliver every record again, or put it back from a copy"
_FORMS: Final = {1: ">qiIQQQII", 2: ">I", 3: ">Iqi", 4: ">", 5: ">", 6: ">", 7: ">Iq", 8: ">q", 9: ">qi"}
_KINDS: Final = {
    1: "snapshot",
    2: "joined",
    3: "acquired",
    4: "accepted",
    5: "released",
    6: "dead letters",
    7: "renewed",
    8: "deleted",
    9: "cut",
}


class QueueSlot(NamedTuple):
    """One whole slot of a journal."""

    sequence: int
    topic_id: str
    partition: int
    boot_id: str
    is_sync: bool


class QueueJournalView:
    """The content of a journal, read from its bytes. Raises :class:`Unreadable` if it has no whole slot or no whole
    snapshot, or if an entry contradicts the ones before."""

    def __init__(self, data: bytes) -> None:
        self.slots = [_slot(data, number) for number in range(2)]
        whole = [slot for slot in self.slots if slot is not None]
        if not whole:
            raise Unreadable("neither of its slots is whole")
        self.slot = max(whole, key=lambda slot: slot.sequence)
        self.damaged_slot = self._find_damaged_slot(data)
        if self.damaged_slot is not None:
            self.slot = self.slot._replace(sequence=self.slot.sequence + 1, boot_id="")
        self.name = _name(data)
        self.next_offset = 0
        self.last_worker = 0
        self.in_flight: dict[int, tuple[int, int]] = {}
        """Offset -> (worker, 0 if available; delivery count)."""
        self.entries: list[tuple[int, str, list[int]]] = []
        """Position, kind, and the numbers of the head, of each entry."""
        self.counts = [0, 0, 0]
        start = _AREAS[self.slot.sequence % 2]
        self.end = start + self._walk(data[start : start + _AREA_SIZE], start)
        self.torn_size = len(data[self.end : start + _AREA_SIZE].rstrip(b"\0"))

    def _find_damaged_slot(self, data: bytes) -> int | None:
        """Return the position of the other slot if it is damaged and its area is in use: it has two entries that
        continue the next sequence number."""
        number = (self.slot.sequence + 1) % 2
        if self.slots[number] is not None or not any(data[_SLOTS[number] : _SLOTS[number] + _SLOT.size]):
            return None
        area = data[_AREAS[number] : _AREAS[number] + _AREA_SIZE]
        chain, position = self._seed(self.slot.sequence + 1), 0
        for _ in range(2):
            size = int.from_bytes(area[position : position + 4], "big")
            chain = crc32c(area[position : position + 4] + area[position + 8 : position + 8 + size], chain)
            if not size or chain != int.from_bytes(area[position + 4 : position + 8], "big"):
                return None
            position += 8 + size
        return _SLOTS[number]

    def _seed(self, sequence: int) -> int:
        return crc32c(sequence.to_bytes(8, "big") + base64.urlsafe_b64decode(self.slot.topic_id + "=="))

    def _walk(self, area: bytes, start: int) -> int:
        """Read the entries of the area; return the position behind the last whole one."""
        chain = self._seed(self.slot.sequence)
        position = 0
        while position + 9 <= len(area):
            size = int.from_bytes(area[position : position + 4], "big")
            body = area[position + 8 : position + 8 + size]
            if not size or len(body) < size:
                break
            chain = crc32c(area[position : position + 4] + body, chain)
            if chain != int.from_bytes(area[position + 4 : position + 8], "big"):
                break
            self._take(body, start + position, is_first=position == 0)
            position += 8 + size
        if not position:
            raise Unreadable("its area has no whole snapshot")
        return position

    def _take(self, body: bytes, position: int, *, is_first: bool) -> None:
        kind = body[0]
        if kind not in _FORMS or (kind == 1) != is_first:
            raise Unreadable(f"it has an entry of kind {kind} at byte {position}")
        form = struct.Struct(_FORMS[kind])
        try:
            head = list(form.unpack_from(body, 1))
            rest = body[1 + form.size :]
            if (kind in (2, 9) and rest) or (kind in (3, 4, 5, 6, 7) and not rest):
                raise ValueError("it has another size")
            if kind in (3, 7) and head[1] < 0:
                raise ValueError("a deadline is negative")
            self.entries.append((position, _KINDS[kind], head))
            if kind == 1:
                self._snapshot(head, rest)
            elif kind == 2:
                if head[0] <= self.last_worker:
                    raise ValueError(f"worker {head[0]} joins after {self.last_worker}")
                self.last_worker = head[0]
            elif kind == 3:
                self._acquire(head[0], list(struct.iter_unpack(">qIH", rest)))
            elif kind == 9:
                self._cut(head[0])
            else:
                self._settle(kind, head, list(struct.iter_unpack(">qI", rest)))
        except struct.error:
            raise Unreadable(f"its entry at byte {position} has {len(body)} bytes") from None
        except (KeyError, ValueError) as error:
            raise Unreadable(f"its entry at byte {position} contradicts the ones before: {error}") from None

    def _snapshot(self, head: list[int], rest: bytes) -> None:
        available, acquired = head[6], head[7]
        middle = available * 10
        if len(rest) != middle + acquired * 22 or available + acquired > _IN_FLIGHT_MAX:
            raise ValueError(f"a snapshot of {available} and {acquired} records has {len(rest)} bytes")
        for offset, count in struct.iter_unpack(">qH", rest[:middle]):
            self.in_flight[offset] = (0, count)
        for offset, count, worker, deadline_ns in struct.iter_unpack(">qHIq", rest[middle:]):
            self.in_flight[offset] = (worker or -1, count)  # 0 is no worker's number
            if deadline_ns < 0:
                raise ValueError("a deadline is negative")
        if len(self.in_flight) != available + acquired or any(not 0 <= offset < head[0] for offset in self.in_flight):
            raise ValueError("it has an offset twice, or one that was never reached")
        if head[0] < 0:
            raise ValueError("its next offset is negative")
        self.next_offset, self.last_worker = head[0], head[2]
        self.counts = head[3:6]

    def _cut(self, end: int) -> None:
        if end < 0:
            raise ValueError(f"it is cut to offset {end}")
        self.next_offset = min(self.next_offset, end)
        self.in_flight = {offset: held for offset, held in self.in_flight.items() if offset < end}

    def _acquire(self, worker: int, runs: list[tuple[int, ...]]) -> None:
        if not 0 < worker <= self.last_worker:
            raise ValueError(f"worker {worker} acquires records, and has not joined")
        _check_runs(runs, is_rising=False)
        for first, count, times in runs:
            if not times:
                raise ValueError(f"offset {first} was delivered 0 times")
            if first >= self.next_offset:
                self.in_flight |= dict.fromkeys(range(first, first + count), (worker, times))
                self.next_offset = first + count
            else:
                for offset in range(first, first + count):
                    if offset not in self.in_flight:
                        raise KeyError(offset)
                    self.in_flight[offset] = (worker, times)
        if len(self.in_flight) > _IN_FLIGHT_MAX:
            raise ValueError(f"{len(self.in_flight)} records are in flight")

    def _settle(self, kind: int, head: list[int], runs: list[tuple[int, ...]]) -> None:
        if kind != 8 or runs:
            _check_runs(runs, is_rising=True)
        if kind == 8:
            if head[0] < self.next_offset:
                raise ValueError(f"it goes back to offset {head[0]}")
            self.counts[2] += head[0] - self.next_offset
            self.next_offset = head[0]
        for first, count in runs:
            for offset in range(first, first + count):
                worker, times = self.in_flight[offset]
                if kind != 8 and (not worker or (kind == 7 and worker != head[0])):
                    raise KeyError(offset)
                if kind == 5:
                    self.in_flight[offset] = (0, times)
                elif kind != 7:
                    del self.in_flight[offset]
                    self.counts[{4: 0, 6: 1, 8: 2}[kind]] += 1


def _check_runs(runs: list[tuple[int, ...]], *, is_rising: bool) -> None:
    end = total = 0
    for first, count, *_ in runs:
        total += count
        if first < (end if is_rising else 0) or not count or first + count > 2**63 - 1 or total > _IN_FLIGHT_MAX:
            raise ValueError(f"it names {count} records from {first}")
        end = first + count


def _slot(data: bytes, number: int) -> QueueSlot | None:
    start = _SLOTS[number]
    raw = data[start : start + _SLOT.size]
    if len(raw) < _SLOT.size:
        return None
    magic, version, flags, sequence, topic_id, partition, boot_id, crc = _SLOT.unpack(raw)
    if crc != crc32c(raw[:-4]) or magic != b"RLQJ" or sequence % 2 != number or partition < 0:
        return None
    if version != 1 or flags > 1:
        raise Unreadable(f"version {version} with flags {flags} is not known")
    return QueueSlot(sequence, uuid_text(topic_id), partition, boot_id.hex(), bool(flags))


def _name(data: bytes) -> str | None:
    size = int.from_bytes(data[_NAME + 4 : _NAME + 6], "big")
    end = _NAME + 6 + size
    if (
        data[_NAME : _NAME + 4] != b"RLQN"
        or size > 200
        or data[end : end + 4] != crc32c(data[_NAME:end]).to_bytes(4, "big")
    ):
        return None
    return data[_NAME + 6 : end].decode("ascii", "replace")


def is_whole_queue(data: bytes) -> bool:
    """Return whether ``data`` is a journal that ends with a whole entry: a copy beside its workers may not be."""
    try:
        return not QueueJournalView(data).torn_size
    except Unreadable:
        return False


def queue_rows(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield a journal as rows for ``replog dump``."""
    journal = QueueJournalView(data)
    held = sum(worker != 0 for worker, _ in journal.in_flight.values())
    yield {
        "queue": journal.name or "",
        **journal.slot._asdict(),
        "next_offset": journal.next_offset,
        "acquired": held,
        "available": len(journal.in_flight) - held,
        **dict(zip(("accepted", "dead_letters", "deleted"), journal.counts, strict=True)),
        "entries": len(journal.entries),
    }
    for offset, (worker, times) in sorted(journal.in_flight.items()):
        yield {
            "offset": offset,
            "state": "acquired" if worker else "available",
            "worker": max(worker, 0),
            "delivery_count": times & ~_REJECTED,
            "rejected": bool(times & _REJECTED),
        }
    if journal.torn_size:
        yield {"damage": f"{journal.torn_size} bytes behind the last whole entry, at byte {journal.end}"}


def check_queues(disk: Disk, path: str, names: Iterable[str], book: Report) -> None:
    """Verify the journals of queues among ``names``, the files of the folder ``path``."""
    for name in names:
        if not name.startswith(QUEUE):
            continue
        file = f"{path}/{name}"
        data = read_file(disk, file, book)
        if not data:
            continue  # its first worker was interrupted
        try:
            journal = QueueJournalView(data)
        except Unreadable as error:
            if any(data) and (len(data) >= _FILE_SIZE or _name(data) is not None):
                book.damage(file, f"damaged: {error}", _AGAIN)
            continue
        if journal.name is None:
            book.warn(file, "the queue's name in it is damaged", "open the queue once: that writes it again")
        if journal.damaged_slot is not None:
            book.warn(
                file,
                "the slot of the area in use is damaged; the area itself is whole",
                "open the queue once: that writes another slot, and nothing is lost",
                position=journal.damaged_slot,
            )
        if journal.torn_size:
            book.warn(
                file,
                f"{journal.torn_size} bytes behind the last whole entry",
                "a process that ended within a write leaves such bytes; if none did, records that were accepted are"
                " delivered again",
                position=journal.end,
            )

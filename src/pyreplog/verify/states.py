"""The small files beside the segments: Kafka's checkpoints, ids, snapshots and transaction indexes, and pyreplog's
own marks and state files.

Each function takes bytes and returns their values, or raises :class:`Unreadable` with the reason.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import struct
from typing import Any, Final, NamedTuple

from crc32c import crc32c

# Names and layouts, as docs/internals/format describes them.
MARK: Final = "replog.mark"
CONFIG: Final = "replog.config"
INCARNATION: Final = "replog.incarnation"
IMPORT: Final = "replog.import"
BACKUP: Final = "replog.backup"
SUMMARIES: Final = "replog.db"
CONTROLLER: Final = "replog.controller"
EPOCHS: Final = "leader-epoch-checkpoint"
IDENTITY: Final = "partition.metadata"
META: Final = "meta.properties"
CLEAN: Final = ".kafka_cleanshutdown"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER: Final = "cleaner-offset-checkpoint"
OFFSET_CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_STARTS, WATERMARKS, CLEANER)

MARK_SLOTS: Final = (0, 512, 1024)
_SLOT: Final = struct.Struct(">4sHHQqqqiI16sI")
SLOT_SIZE: Final = _SLOT.size
MARK_SIZE: Final = MARK_SLOTS[-1] + SLOT_SIZE
_SNAPSHOT_HEAD: Final = struct.Struct(">hIi")
_SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")
_ABORTED: Final = struct.Struct(">hqqqq")
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_PADDED: Final = re.compile(r"(.+-)0+([0-9]+)")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


class Unreadable(ValueError):
    """The bytes do not fit the file's name; the text says why."""


class Slot(NamedTuple):
    """One slot of a mark."""

    sequence: int
    synced_end: int
    high_watermark: int
    start_offset: int
    partition: int
    epochs_crc: int
    topic_id: str
    is_sync: bool
    is_incomplete: bool
    is_adopted: bool
    is_poisoned: bool
    is_reported: bool
    is_compacted: bool

    @property
    def promised(self) -> int:
        """Below this offset everything was synced, or shown to readers."""
        return max(self.synced_end, self.high_watermark)


class SnapshotEntry(NamedTuple):
    """One producer in a snapshot. -1: none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


class Aborted(NamedTuple):
    """One aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def partition_of(name: str) -> tuple[str, int] | None:
    """Return (topic, partition) of a folder's name; None if it is not a partition's."""
    topic, dash, number = name.rpartition("-")
    if not dash or _PARTITION.fullmatch(number) is None or int(number) > 2**31 - 1:
        return None
    if _TOPIC.fullmatch(topic) is None or topic in (".", ".."):
        return None
    return topic, int(number)


def taken_for(name: str) -> str:
    """Return the partition for which Kafka takes a folder whose number has leading zeros; empty if it has none."""
    padded = _PADDED.fullmatch(name)
    plain = "" if padded is None else padded[1] + padded[2]
    return plain if partition_of(plain) else ""


def uuid_text(raw: bytes) -> str:
    """Kafka's 22 characters."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def check_uuid(text: str) -> str:
    """Return ``text`` if it is an id in its only spelling."""
    try:
        raw = base64.b64decode(text.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raw = b""
    if len(raw) != 16 or uuid_text(raw) != text:
        raise Unreadable(f"{text[:64]!r} is not an id of 22 characters")
    return text


def slot_of(data: bytes) -> Slot:
    """One slot's bytes."""
    if len(data) != SLOT_SIZE:
        raise Unreadable(f"a slot has {len(data)} bytes, expected {SLOT_SIZE}")
    magic, version, flags, sequence, synced, watermark, start, partition, epochs_crc, topic_id, crc = _SLOT.unpack(data)
    if crc32c(data[:-4]) != crc:
        raise Unreadable("its checksum does not match")
    if magic != b"RLMK" or version != 1 or flags & ~0x3F:
        raise Unreadable(f"magic {magic!r}, version {version}, flags {flags:#x} are not known")
    bits = [bool(flags >> bit & 1) for bit in range(6)]
    return Slot(sequence, synced, watermark, start, partition, epochs_crc, uuid_text(topic_id), *bits)


def mark_slots(data: bytes) -> list[Slot | Unreadable | None]:
    """The three slots of a mark: each one read, broken, or never written (None)."""
    found: list[Slot | Unreadable | None] = []
    for position in MARK_SLOTS:
        piece = data[position : position + SLOT_SIZE]
        if not any(piece):
            found.append(None)
            continue
        try:
            found.append(slot_of(piece))
        except Unreadable as error:
            found.append(error)
    return found


def mark(data: bytes) -> Slot | None:
    """Return the slot that counts; None if there is none. A file that lost its end may have lost the newest slot,
    so none of its slots counts."""
    return newest_slot(mark_slots(data)) if len(data) >= MARK_SIZE else None


def newest_slot(slots: list[Slot | Unreadable | None]) -> Slot | None:
    """Return the slot that was written last."""
    return max((slot for slot in slots if isinstance(slot, Slot)), key=lambda slot: slot.sequence, default=None)


def number(text: str, low: int, high: int) -> int:
    """A decimal number in its range."""
    if _NUMBER.fullmatch(text) is None or not low <= int(text) <= high:
        raise Unreadable(f"{text[:64]!r} is not a number from {low} to {high}")
    return int(text)


def _lines(data: bytes) -> list[str]:
    try:
        return data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise Unreadable(f"byte {error.start} is not UTF-8") from None


def checkpoint(data: bytes, fields: int) -> list[list[str]]:
    """The entries of one of Kafka's checkpoints. None in an empty file."""
    lines = _lines(data)
    if lines == [""]:
        return []
    if lines[0].strip() != "0":
        raise Unreadable(f"its version is {lines[0][:64]!r}, and only 0 is known")
    if lines[-1] != "":
        raise Unreadable("its last line has no end")
    if len(lines) == 2:
        return []
    count = number(lines[1].strip(), 0, 2**31 - 1)
    entries = [line.split() for line in lines[2:-1]]
    if len(entries) != count:
        raise Unreadable(f"it has {len(entries)} entries and says {count}")
    for index, entry in enumerate(entries):
        if len(entry) != fields:
            raise Unreadable(f"line {index + 3} has {len(entry)} fields, not {fields}")
    return entries


def offsets(data: bytes) -> dict[tuple[str, int], int]:
    """An offset checkpoint: (topic, partition) -> offset."""
    found: dict[tuple[str, int], int] = {}
    for topic, partition, offset in checkpoint(data, 3):
        key = (topic, number(partition, 0, 2**31 - 1))
        if key in found:
            raise Unreadable(f"{topic}-{partition} has two entries")
        found[key] = number(offset, -1, 2**63 - 1)
    return found


def epochs(data: bytes) -> list[tuple[int, int]]:
    """A leader epoch history: (epoch, start offset), rising in both."""
    found: list[tuple[int, int]] = []
    for epoch, start in checkpoint(data, 2):
        entry = (number(epoch, 0, 2**31 - 1), number(start, 0, 2**63 - 1))
        if found and (entry[0] <= found[-1][0] or entry[1] <= found[-1][1]):
            raise Unreadable(
                f"epoch {entry[0]} from {entry[1]} does not follow epoch {found[-1][0]} from {found[-1][1]}"
            )
        found.append(entry)
    return found


def state(data: bytes) -> dict[str, str]:
    """One of our state files: ``name: value`` lines and their checksum."""
    body, newline, last = data[:-1].rpartition(b"\n")
    body += newline
    if not data.endswith(b"\n") or last != f"crc32c: {crc32c(body):08x}".encode():
        raise Unreadable("its checksum does not match")
    found = {}
    for line in _lines(body)[:-1]:
        name, colon, value = line.partition(": ")
        if not colon:
            raise Unreadable(f"a line without a colon: {line[:64]!r}")
        found[name] = value
    return found


def imports(data: bytes) -> list[dict[str, Any]]:
    """Return the progress of imports: the values of each imported file."""
    found = state(data)
    if found.get("version") != "1":
        raise Unreadable(f"its version is {found.get('version', '')[:64]!r}, and only 1 is known")
    try:
        places = [json.loads(found[name]) for name in sorted(found) if name.startswith("import.")]
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is no JSON: {error}") from None
    for place in places:
        if not (isinstance(place, dict) and isinstance(place.get("path"), str) and isinstance(place.get("done"), bool)):
            raise Unreadable(f"it lacks the imported file or its target: {str(place)[:64]}")
    return places


def identity(data: bytes) -> str:
    """The topic id in ``partition.metadata``."""
    lines = _lines(data)
    if len(lines) < 2:
        raise Unreadable("it should have two lines")
    names = [line.partition(":")[0] for line in lines[:2]]
    if names != ["version", "topic_id"]:
        raise Unreadable(f"its lines begin with {names}, not with 'version' and 'topic_id'")
    if lines[0].partition(":")[2].strip() != "0":
        raise Unreadable(f"its version is {lines[0].partition(':')[2].strip()[:64]!r}, and only 0 is known")
    return check_uuid(lines[1].partition(":")[2].strip())


def properties(data: bytes) -> dict[str, str]:
    """A Java properties file, as Kafka writes it."""
    found = {}
    for line in data.decode("latin-1").splitlines():
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        match = re.fullmatch(r"((?:[^\\=:]|\\.)+?)\s*[=:]\s*(.*)", text)
        if match is None:
            raise Unreadable(f"a line that is no name=value: {text[:64]!r}")
        found[re.sub(r"\\(.)", r"\1", match[1])] = re.sub(r"\\(.)", r"\1", match[2])
    return found


class ShutdownMarkerFile(NamedTuple):
    """A clean shutdown marker. ``incarnation`` is "" in Kafka's markers. ``summaries`` has the size and CRC-32C of
    ``replog.db``, if the marker names it."""

    incarnation: str
    summaries: tuple[int, int] | None


def farewell(data: bytes) -> ShutdownMarkerFile:
    """A clean shutdown marker; an empty one is that of an old broker."""
    if not data:
        return ShutdownMarkerFile("", None)
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise Unreadable("it is not a JSON object")
    size, crc = fields.get("replogStoreSize"), fields.get("replogStoreCrc")
    named = (size, crc) if isinstance(size, int) and isinstance(crc, int) else None
    return ShutdownMarkerFile(str(fields.get("replogIncarnation", "")), named)


def controller(data: bytes) -> dict[str, Any]:
    """The controller's state."""
    head, _, line = data.partition(b"\n")
    line = line.removesuffix(b"\n")
    if head != b"pyreplog-controller 1 %08x" % crc32c(line):
        raise Unreadable("its checksum does not match")
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise Unreadable("it is not a JSON object")
    return fields


def snapshot(data: bytes) -> list[SnapshotEntry]:
    """A producer snapshot."""
    if len(data) < _SNAPSHOT_HEAD.size:
        raise Unreadable(f"{len(data)} bytes, too few for a producer snapshot")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != 1:
        raise Unreadable(f"its version is {version}, and only 1 is known")
    if crc != crc32c(data[6:]):
        raise Unreadable("its checksum does not match")
    if len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
        raise Unreadable(f"it says that it has {count} producers, in {len(data)} bytes")
    return [SnapshotEntry(*entry) for entry in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :])]


def aborted(data: bytes) -> list[Aborted]:
    """The whole entries of a transaction index."""
    whole = len(data) - len(data) % _ABORTED.size
    found: list[Aborted] = []
    for version, *fields in _ABORTED.iter_unpack(data[:whole]):
        if version != 0:
            raise Unreadable(f"entry {len(found)} has version {version}")
        found.append(Aborted(*fields))
    return found

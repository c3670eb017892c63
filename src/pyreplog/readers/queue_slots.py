"""The slots of a queue's journal, which say what area is in use, and the queue's name in it."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from pyreplog.errors import CorruptError
from pyreplog.log import decode_uuid, encode_uuid
from pyreplog.record import crc32c

__all__ = [
    "NAME_POSITION",
    "NO_BOOT",
    "SEQUENCE_END",
    "SLOT_POSITIONS",
    "SLOT_SIZE",
    "JournalSlot",
    "boot_bytes",
    "encode_name",
    "name_of",
    "slots_of",
]

# On disk: never change.
_MAGIC: Final = b"RLQJ"
_VERSION: Final = 1
_SYNC: Final = 1
_SLOT: Final = Struct(">4sHHQ16si16s")
_CRC: Final = Struct(">I")
SLOT_SIZE: Final = _SLOT.size + _CRC.size
SEQUENCE_END: Final = 16
"""The bytes of a slot up to the sequence number, its last field that changes with each turn."""
SLOT_POSITIONS: Final = (0, 512)
NAME_POSITION: Final = 1024
_NAME_MAGIC: Final = b"RLQN"
_NAME_HEAD: Final = Struct(">4sH")
_NAME_SIZE_MAX: Final = 200


NO_BOOT: Final = bytes(16)


class JournalSlot(NamedTuple):
    """One slot."""

    sequence: int
    topic_id: str
    partition: int
    boot_id: bytes
    is_sync: bool

    def encode(self) -> bytes:
        """Return its bytes."""
        flags = _SYNC if self.is_sync else 0
        body = _SLOT.pack(
            _MAGIC, _VERSION, flags, self.sequence, decode_uuid(self.topic_id), self.partition, self.boot_id
        )
        return body + _CRC.pack(crc32c(body))


def slots_of(head: bytes) -> list[JournalSlot]:
    """Return the whole slots. Raises :class:`CorruptError` for one of a newer version."""
    slots = []
    for position in SLOT_POSITIONS:
        data = head[position : position + SLOT_SIZE]
        if len(data) < SLOT_SIZE or _CRC.unpack_from(data, _SLOT.size)[0] != crc32c(data[: _SLOT.size]):
            continue
        magic, version, flags, sequence, topic_id, partition, boot_id = _SLOT.unpack_from(data)
        if magic != _MAGIC or sequence % 2 != SLOT_POSITIONS.index(position) or partition < 0:
            continue
        if version != _VERSION or flags & ~_SYNC:
            raise CorruptError(
                f"the queue's journal has version {version} and flags {flags}: a newer pyreplog wrote it",
                position=position,
            )
        slots.append(JournalSlot(sequence, encode_uuid(topic_id), partition, boot_id, bool(flags & _SYNC)))
    return slots


def encode_name(name: str) -> bytes:
    """Return the bytes of the queue's name."""
    data = _NAME_HEAD.pack(_NAME_MAGIC, len(name)) + name.encode()
    return data + _CRC.pack(crc32c(data))


def name_of(head: bytes) -> str | None:
    """Return the queue's name; None if it is missing or damaged."""
    if len(head) < NAME_POSITION + _NAME_HEAD.size:
        return None
    magic, size = _NAME_HEAD.unpack_from(head, NAME_POSITION)
    end = NAME_POSITION + _NAME_HEAD.size + size
    if magic != _NAME_MAGIC or size > _NAME_SIZE_MAX or len(head) < end + _CRC.size:
        return None
    if _CRC.unpack_from(head, end)[0] != crc32c(head[NAME_POSITION:end]):
        return None
    return head[end - size : end].decode("ascii", "replace")


def boot_bytes(boot_id: str) -> bytes:
    """Return a boot id as 16 bytes; zeros if the system cannot tell."""
    try:
        data = bytes.fromhex(boot_id.replace("-", ""))
    except ValueError:
        return NO_BOOT
    return data if len(data) == len(NO_BOOT) else NO_BOOT

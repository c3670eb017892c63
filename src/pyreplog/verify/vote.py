"""A node's vote in the quorum: ``quorum-state``, and ``replog.quorum`` beside it, which vouches for it.

``replog.quorum`` has two slots. The newest whole one holds the state that ``quorum-state`` must hold, and the CRC-32C
of the ``quorum-state`` before: between the writes of the two files the older one is right too.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from pyreplog.ports import Disk
from pyreplog.verify.findings import Report
from pyreplog.verify.folder import read_file
from pyreplog.verify.states import Unreadable

QUORUM_STATE: Final = "quorum-state"
VOUCHER: Final = "replog.quorum"
REPLACE: Final = "replace this node while the other voters are a majority: it then fetches the metadata from them"
_LOOK: Final = "look at the disk and the file's mode; then verify again"
_SLOTS: Final = (0, 1024)
_SLOT_SIZE: Final = 1024
_TRIES: Final = 3
_HEAD: Final = struct.Struct(">4sHHQI")
_MAGIC: Final = b"RLQS"
_INT32_MAX: Final = 2**31 - 1
_NO_ID: Final = "A" * 22


class Vote(NamedTuple):
    """The content of ``quorum-state``. -1: no node."""

    epoch: int
    leader_id: int
    voted_id: int
    voted_directory_id: str = _NO_ID


class VoteSlot(NamedTuple):
    """One whole slot of ``replog.quorum``."""

    sequence: int
    vote: Vote
    before: int
    node_id: int
    directory_id: str
    cluster_id: str
    was_voter: bool
    failure: str


def state_fields(data: bytes) -> dict[str, Any]:
    """Return all fields of ``quorum-state`` of version 0 or 1."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is not JSON: {error}") from None
    if not isinstance(fields, dict) or fields.get("data_version") not in (0, 1):
        raise Unreadable("it is not a quorum's state of version 0 or 1")
    return fields


def quorum_state(data: bytes) -> Vote:
    """Parse ``quorum-state`` of version 0 or 1."""
    fields = state_fields(data)
    epoch, leader_id, voted_id = (_number(name, fields.get(name)) for name in ("leaderEpoch", "leaderId", "votedId"))
    directory = fields.get("votedDirectoryId", _NO_ID)
    return Vote(epoch, leader_id, voted_id, directory if isinstance(directory, str) else _NO_ID)


def _number(name: str, value: object) -> int:
    if type(value) is not int or not -1 <= value <= _INT32_MAX:
        raise Unreadable(f"its {name} is {str(value)[:64]}")
    return value


def slots_of(data: bytes) -> list[VoteSlot | Unreadable | None]:
    """Return the slots of ``replog.quorum``; None for one that was never written."""
    return [_slot(data[position : position + _SLOT_SIZE]) for position in _SLOTS]


def _slot(data: bytes) -> VoteSlot | Unreadable | None:
    if not any(data):
        return None
    if len(data) < _HEAD.size:
        return Unreadable(f"{len(data)} bytes are too few")
    magic, version, size, sequence, checksum = _HEAD.unpack_from(data)
    content = data[_HEAD.size : _HEAD.size + size]
    if magic != _MAGIC or version != 1:
        return Unreadable("it does not begin as a slot of version 1")
    if crc32c(_HEAD.pack(magic, version, size, sequence, 0) + content) != checksum:
        return Unreadable("its checksum does not match")
    try:
        body: dict[str, Any] = json.loads(content)
        epoch, leader_id, voted = body["state"]
        voted_id, voted_directory_id = voted or (-1, _NO_ID)
        node_id, directory_id, cluster_id = body["identity"]
        return VoteSlot(
            sequence,
            Vote(epoch, leader_id, voted_id, voted_directory_id),
            body["before"],
            node_id,
            directory_id,
            cluster_id,
            body["was_voter"],
            body["failure"] or "",
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        return Unreadable(f"its content is not a vote: {error}")


def check_vote(disk: Disk, path: str, last_epoch: int, book: Report, *, is_own: bool, is_begun: bool) -> None:
    """Verify the vote in the metadata folder ``path``, whose log ends in ``last_epoch``.

    ``is_own``: pyreplog wrote the folder, so ``replog.quorum`` belongs there. ``is_begun``: there are records.
    """
    file = f"{path}/{QUORUM_STATE}"
    for _ in range(_TRIES):
        own = Report(book.read)
        data = _read(disk, file, own)  # first, because the voucher is written first: it also vouches for the one before
        voucher = _newest_slot(disk, path, own, is_own=is_own)
        if data is None or voucher is None or _vouches(voucher, data):
            break
    own.byte_count = 0  # counted already
    book.take(own)
    if data is None:
        if voucher is not None:
            book.damage(file, "the node's vote is missing: the node may vote twice in one epoch", REPLACE)
        elif is_begun and not is_own:
            book.warn(file, "the node's vote is missing", "nothing to do: the broker learns the epoch from its log")
        return
    try:
        vote = quorum_state(data)
    except Unreadable as error:
        book.damage(file, f"damaged: {error}", REPLACE)
        return
    if voucher is not None and not _vouches(voucher, data):
        text = f"it is not the file that {VOUCHER} vouches for: one of the two is damaged, or an older copy"
        book.damage(file, text, REPLACE)
    elif voucher is not None and vote != voucher.vote:
        book.note(file, f"the change that {VOUCHER} holds was cut short", "nothing to do: the next opening ends it")
    elif vote.epoch < last_epoch:
        text = f"it knows epoch {vote.epoch}, and the log has epoch {last_epoch}: it is an older copy"
        if is_own:
            book.damage(file, text, REPLACE)
        else:
            book.warn(file, text, "nothing to do: the broker takes the epoch of its log")


def _vouches(voucher: VoteSlot, data: bytes) -> bool:
    """Whether ``data`` is the ``quorum-state`` of ``voucher``, or the one before."""
    return crc32c(data) in (crc32c(_written(voucher.vote)), voucher.before)


def _newest_slot(disk: Disk, path: str, book: Report, *, is_own: bool) -> VoteSlot | None:
    """Return the newest whole slot of ``replog.quorum``, and report its damage."""
    file = f"{path}/{VOUCHER}"
    data = _read(disk, file, book)
    if data is None:
        if is_own:
            book.damage(file, f"the file that vouches for {QUORUM_STATE} is missing", REPLACE)
        return None
    slots = slots_of(data)
    newest = max((slot for slot in slots if isinstance(slot, VoteSlot)), default=None)
    if newest is None:
        book.damage(file, f"no slot is whole, so nothing vouches for {QUORUM_STATE}", REPLACE)
        return None
    for number, slot in enumerate(slots):
        if isinstance(slot, Unreadable):
            text = f"slot {number} is damaged: {slot}"
            book.warn(file, text, "nothing to do: the next vote replaces it", position=_SLOTS[number])
    if newest.failure:
        book.warn(file, f"this node does not vote any more: {newest.failure[:300]}", REPLACE)
    return newest


def _written(vote: Vote) -> bytes:
    """Return ``quorum-state`` as pyreplog writes it for ``vote``."""
    return (
        f'{{"leaderId":{vote.leader_id},"leaderEpoch":{vote.epoch},"votedId":{vote.voted_id},'
        f'"votedDirectoryId":"{vote.voted_directory_id}","data_version":1}}'
    ).encode()


def _read(disk: Disk, path: str, book: Report) -> bytes | None:
    try:
        return read_file(disk, path, book)
    except Unreadable as error:
        book.damage(path, str(error), _LOOK)
        return None

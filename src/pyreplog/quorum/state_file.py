"""``quorum-state``, Kafka's file, and ``replog.quorum`` beside it, which vouches for it.

``quorum-state`` is JSON without a checksum: an older copy, a missing one or a flipped bit could make
a voter vote twice. So each state is first written to ``replog.quorum``, with the checksums of the
``quorum-state`` before it and of its own; then ``quorum-state`` is replaced. A crash between the two
leaves a ``quorum-state`` with the checksum before, and the next opening finishes the change. Power
loss may do the same later, because the folder is synced only before the next state is written. Any
other content is damage: the node is no whole voter then.

``replog.quorum`` has two slots that are written in turn, each synced before the next::

    position 0 and 1024
    magic "RLQS" | version | length | sequence | crc | JSON
       4 bytes   |    2    |   2    |    8     |  4  | length bytes
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final, NamedTuple

from pyreplog.errors import CorruptError, StorageError
from pyreplog.log import read_whole, replace_file
from pyreplog.ports import Disk, File
from pyreplog.quorum.storage import HardState
from pyreplog.quorum.voters import Identity, ReplicaKey
from pyreplog.record import crc32c
from pyreplog.wire import NO_ID

__all__ = [
    "STATE_NAME",
    "VOUCHER_NAME",
    "StateFile",
    "Voucher",
    "decode_state",
    "encode_state",
    "find_epoch",
    "find_state_damage",
]

# On disk: never change.
STATE_NAME: Final = "quorum-state"
VOUCHER_NAME: Final = "replog.quorum"
_MAGIC: Final = b"RLQS"
_VERSION: Final = 1
_HEAD: Final = struct.Struct(">4sHHQI")
_SLOT_SIZE: Final = 1024
_REASON_SIZE_MAX: Final = 300
_STATE_SIZE_MAX: Final = 64 << 10
_EPOCH_MAX: Final = 1 << 30
"""A damaged file may tell any number."""


class Voucher(NamedTuple):
    """The content of one slot."""

    identity: Identity
    before: int
    """The checksum of the ``quorum-state`` before."""
    state: HardState
    was_voter: bool = False
    failure: str | None = None
    """The reason for which this node is no whole voter any more."""


def encode_state(state: HardState) -> bytes:
    """Return the content of ``quorum-state``, version 1, as Kafka writes it."""
    voted = state.voted or ReplicaKey(-1, NO_ID)
    body = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": voted.node_id,
        "votedDirectoryId": voted.directory_id,
        "data_version": 1,
    }
    return json.dumps(body, separators=(",", ":")).encode()


def decode_state(data: bytes, file: str) -> HardState:
    """Parse ``quorum-state``, also version 0. Raises :class:`CorruptError`."""
    try:
        body = json.loads(data)
        voted_id = int(body.get("votedId", -1))
        voted = ReplicaKey(voted_id, str(body.get("votedDirectoryId", NO_ID))) if voted_id >= 0 else None
        return HardState(int(body["leaderEpoch"]), int(body.get("leaderId", -1)), voted)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptError(f"quorum state: {error}", file=file) from error


class StateFile:
    """The two files of one folder. Every write is durable when it returns."""

    __slots__ = (
        "_disk",
        "_file",
        "_folder",
        "_is_doubtful",
        "_is_named",
        "_reserve_in",
        "_sequence",
        "_written",
        "in_doubt",
        "voucher",
    )

    def __init__(self, disk: Disk, folder: str, file: File, voucher: Voucher, sequence: int) -> None:
        self._disk = disk
        self._folder = folder
        self._reserve_in = folder.rpartition("/")[0] or "."
        self._file = file
        self._sequence = sequence
        #: The checksum of ``quorum-state`` as it is on the disk.
        self._written = crc32c(encode_state(voucher.state))
        #: Whether the name of the present ``quorum-state`` is known to be durable.
        self._is_named = True
        #: Whether a sync of the folder may have failed since the file was replaced.
        self._is_doubtful = False
        self.voucher = voucher
        #: Whether a refused change may have replaced the file: open it again before the next one.
        self.in_doubt = False

    @classmethod
    def create(cls, disk: Disk, folder: str, identity: Identity, *, was_voter: bool) -> StateFile:
        """Make both files for a node that has not voted yet. A crash leaves no voucher, or a whole one."""
        state = HardState()
        data = encode_state(state)
        replace_file(disk, f"{folder}/{STATE_NAME}", data)
        voucher = Voucher(identity, crc32c(data), state, was_voter)
        path = f"{folder}/{VOUCHER_NAME}"
        replace_file(disk, path, bytes(_SLOT_SIZE) + _slot(voucher, 1))
        return cls(disk, folder, disk.open(path, write=True), voucher, 1)

    @classmethod
    def open(cls, disk: Disk, folder: str, identity: Identity) -> StateFile:
        """Open both files, and finish a change that a crash cut short.

        Raises :class:`CorruptError` if they are missing, damaged, or do not belong together.
        """
        file = _open_voucher(disk, folder, write=True)
        try:
            sequence, voucher = _newest_of(file, identity)
            opened = cls(disk, folder, file, voucher, sequence)
            opened._settle()
        except BaseException:
            file.close()
            raise
        return opened

    @property
    def state(self) -> HardState:
        """The state that was written last."""
        return self.voucher.state

    @property
    def was_voter(self) -> bool:
        """Whether this node was a voter once."""
        return self.voucher.was_voter

    @property
    def failure(self) -> str | None:
        """The reason for which this node is no whole voter any more."""
        return self.voucher.failure

    def write(self, state: HardState) -> None:
        """Replace the state."""
        self._put(self.voucher._replace(before=self._written, state=state))
        self._replace()

    def note_voter(self) -> None:
        """Keep that this node was a voter once."""
        self._put(self.voucher._replace(before=self._written, was_voter=True))

    def note_failure(self, reason: str) -> None:
        """Keep that this node is no whole voter any more."""
        self._put(self.voucher._replace(before=self._written, failure=reason[:_REASON_SIZE_MAX]))

    def close(self) -> None:
        """Release the file."""
        self._file.close()

    def _settle(self) -> None:
        """Compare ``quorum-state`` with the voucher."""
        found = _check_state(self._disk, self._folder, self.voucher)
        if self._written == self.voucher.before:
            return
        if found == self._written:
            # The file was replaced, so the syncs of the slot and of its content had succeeded. Only
            # the sync of its name may be missing, or have failed. Until the next change either
            # content is right.
            self._is_named, self._is_doubtful = False, True
            return
        # The change was cut short, and the slot need not be durable: after a failed sync the page
        # cache shows bytes that are not on the disk. So write both again.
        self._write_slot(self.voucher, self._sequence)
        self._replace()

    def _replace(self) -> None:
        path = f"{self._folder}/{STATE_NAME}"
        data = encode_state(self.voucher.state)
        try:
            # The name is synced before the next change.
            # Until then the voucher names either content.
            self._is_named = False
            replace_file(self._disk, path, data, reserve_in=self._reserve_in, named=False)
        except BaseException:
            # After a power cut the file may have either content, and the next voucher names one.
            self.in_doubt = self.in_doubt or self._checksum() != self._written
            raise
        self._written = crc32c(data)

    def _checksum(self) -> int | None:
        """Return the checksum of ``quorum-state`` as it is shown now; None if it cannot be read."""
        try:
            data = read_whole(self._disk, f"{self._folder}/{STATE_NAME}", _STATE_SIZE_MAX)
        except (StorageError, CorruptError):
            return None
        return None if data is None else crc32c(data)

    def _put(self, voucher: Voucher) -> None:
        """Write the slot that is not the newest, and sync it."""
        if not self._is_named:
            self._name()
        self._write_slot(voucher, self._sequence + 1)
        self._sequence += 1
        self.voucher = voucher

    def _name(self) -> None:
        """Make the present ``quorum-state`` durable under its name."""
        if self._is_doubtful:  # a sync after a failed one proves nothing, so the file is written again
            replace_file(
                self._disk,
                f"{self._folder}/{STATE_NAME}",
                encode_state(self.voucher.state),
                reserve_in=self._reserve_in,
                named=False,
            )
        self._is_doubtful = True
        self._disk.sync_directory(self._folder)
        self._is_named, self._is_doubtful = True, False

    def _write_slot(self, voucher: Voucher, sequence: int) -> None:
        self._file.write_at(sequence % 2 * _SLOT_SIZE, [_slot(voucher, sequence)])
        self._file.sync()


def find_state_damage(disk: Disk, folder: str, identity: Identity) -> str | None:
    """Return the reason for which the node is no whole voter, by these two files; None if they are whole.

    Nothing is written. Beside the node that writes them a damage may be reported that is none.
    """
    try:
        file = _open_voucher(disk, folder)
        try:
            voucher = _newest_of(file, identity)[1]
        finally:
            file.close()
        _check_state(disk, folder, voucher)
    except CorruptError as error:
        return str(error)
    return voucher.failure


def find_epoch(disk: Disk, folder: str) -> int:
    """Return the latest epoch that the files of a node tell, whether they are whole or not; 0 if they tell none."""
    epochs = [0]
    try:
        data = read_whole(disk, f"{folder}/{STATE_NAME}", _STATE_SIZE_MAX)
        if data is not None:
            epochs.append(decode_state(data, STATE_NAME).epoch)
    except CorruptError:
        pass  # the other file may tell it
    if disk.stat(f"{folder}/{VOUCHER_NAME}") is not None:
        file = disk.open(f"{folder}/{VOUCHER_NAME}")
        try:
            slots = [_read_slot(file, position) for position in (0, _SLOT_SIZE)]
        finally:
            file.close()
        epochs += [slot[1].state.epoch for slot in slots if slot is not None]
    return max(one for one in epochs if one < _EPOCH_MAX)


def _open_voucher(disk: Disk, folder: str, *, write: bool = False) -> File:
    path = f"{folder}/{VOUCHER_NAME}"
    if disk.stat(path) is None:
        raise CorruptError(f"{VOUCHER_NAME} is missing, so nothing vouches for {STATE_NAME}", file=path)
    return disk.open(path, write=write)


def _newest_of(file: File, identity: Identity) -> tuple[int, Voucher]:
    """Return the sequence and the voucher of the newest whole slot."""
    slots = [found for position in (0, _SLOT_SIZE) if (found := _read_slot(file, position)) is not None]
    if not slots:
        raise CorruptError("no slot is whole", file=file.path)
    sequence, voucher = max(slots, key=_sequence_of)
    if voucher.identity != identity:
        raise CorruptError(f"it is of {tuple(voucher.identity)}, not of {tuple(identity)}", file=file.path)
    return sequence, voucher


def _check_state(disk: Disk, folder: str, voucher: Voucher) -> int:
    """Compare ``quorum-state`` with the newest voucher. Return its checksum: that of the state, or of the one before
    it if the change was cut short."""
    path = f"{folder}/{STATE_NAME}"
    data = read_whole(disk, path, _STATE_SIZE_MAX)
    if data is None:
        raise CorruptError("the file is missing", file=path)
    checksum = crc32c(data)
    if checksum not in (crc32c(encode_state(voucher.state)), voucher.before):
        raise CorruptError(f"{VOUCHER_NAME} does not vouch for the content", file=path)
    return checksum


def _sequence_of(slot: tuple[int, Voucher]) -> int:
    return slot[0]


def _slot(voucher: Voucher, sequence: int) -> bytes:
    """Return the bytes of a slot."""
    payload = _encode(voucher)
    head = _HEAD.pack(_MAGIC, _VERSION, len(payload), sequence, 0)
    checksum = crc32c(head + payload)
    return (_HEAD.pack(_MAGIC, _VERSION, len(payload), sequence, checksum) + payload).ljust(_SLOT_SIZE, b"\0")


def _encode(voucher: Voucher) -> bytes:
    state = voucher.state
    body = {
        "identity": list(voucher.identity),
        "before": voucher.before,
        "state": [state.epoch, state.leader_id, None if state.voted is None else list(state.voted)],
        "was_voter": voucher.was_voter,
        "failure": voucher.failure,
    }
    return json.dumps(body, separators=(",", ":")).encode()


def _read_slot(file: File, position: int) -> tuple[int, Voucher] | None:
    data = bytes(file.read_at(position, _SLOT_SIZE))
    if len(data) < _HEAD.size:
        return None
    magic, version, length, sequence, checksum = _HEAD.unpack_from(data)
    payload = data[_HEAD.size : _HEAD.size + length]
    if magic != _MAGIC or version != _VERSION or len(payload) != length:
        return None
    if crc32c(_HEAD.pack(magic, version, length, sequence, 0) + payload) != checksum:
        return None
    try:
        body: dict[str, Any] = json.loads(payload)
        epoch, leader_id, voted = body["state"]
        node_id, directory_id, cluster_id = body["identity"]
        voted_id, voted_directory_id = voted or (-1, NO_ID)
        numbers = (epoch, leader_id, node_id, voted_id, body["before"])
        texts = (directory_id, cluster_id, voted_directory_id, body["failure"] or "")
        if any(type(one) is not int for one in numbers) or any(type(one) is not str for one in texts):
            return None
        state = HardState(epoch, leader_id, None if voted is None else ReplicaKey(voted_id, voted_directory_id))
        identity = Identity(node_id, directory_id, cluster_id)
        return sequence, Voucher(identity, body["before"], state, bool(body["was_voter"]), body["failure"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None

"""TableStore: the files of one table, the latest value of each key of one partition.

``replog.table-NAME.db`` is one LMDB file with the entries and the offset below which all records are
applied; a transaction changes both, so a process that dies leaves a picture of exactly one offset.
``replog.table-NAME`` beside it is small: it names the file that may be opened, and processes lock it
for each look and each change. See docs/internals/format/table.md.
"""

from __future__ import annotations

import errno
import hashlib
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import itemgetter
from typing import Final, NamedTuple

from pyreplog.errors import ClosedError, CorruptError, StorageError
from pyreplog.log import join, parent_of
from pyreplog.ports import Disk, Store
from pyreplog.readers.layout import table_file_name
from pyreplog.record import crc32c

__all__ = [
    "TABLE_STORE_SUFFIX",
    "TableHeader",
    "TableState",
    "TableStore",
    "decode_table_state",
    "encode_entry",
    "encode_table_state",
    "read_table_header",
    "table_owner",
]

# On disk: never change.
TABLE_STORE_SUFFIX: Final = ".db"
_HEADER: Final = struct.Struct(">4sBB2x16sQQ40s")
"""Magic, version, whether all is synced, the owner, device and inode of the store, boot id."""
_STATE: Final = struct.Struct(">16sqiq")
"""The owner, and the fields of :class:`TableState`."""
_CRC: Final = struct.Struct(">I")
_SYNCED_AT: Final = 5
_MAGIC: Final = b"RLTB"
_VERSION: Final = 1
_STATE_KEY: Final = b"\0"
_SHORT: Final = b"k"
_LONG: Final = b"l"
_KEY_SIZE_MAX: Final = 500
"""A longer key is stored under its digest, because LMDB allows 511 bytes."""
_DIGEST_SIZE: Final = 32
_LENGTH: Final = struct.Struct(">I")
_KEY: Final = itemgetter(0)
SLICE_COUNT: Final = 1024
"""Entries that one look takes when a caller reads all of them."""

HEADER_SIZE: Final = _HEADER.size + _CRC.size


class TableState(NamedTuple):
    """The records that a table shows."""

    next_offset: int
    """All records below are applied."""
    epoch: int
    """The leader epoch of the record before it; -1 if it is not known or no record is applied."""
    tombstone: int = -1
    """The highest offset of a tombstone that the log had dropped before these records were read; -1: none."""


class TableHeader(NamedTuple):
    """The content of the small file."""

    is_synced: bool
    """Whether the store was closed, and synced, after its last change."""
    owner: bytes
    """A digest of the log's identity."""
    store: tuple[int, int]
    """Device and inode of the store."""
    boot_id: str
    """The boot in which the store was opened last; "" if the system could not tell."""

    def encode(self) -> bytes:
        """Return its bytes."""
        body = _HEADER.pack(
            _MAGIC, _VERSION, self.is_synced, self.owner, *self.store, self.boot_id.encode("ascii", "replace")[:40]
        )
        return body + _CRC.pack(crc32c(body))


def read_table_header(data: bytes, path: str) -> TableHeader:
    """Return the header in ``data``, the whole content of a small file. Raises :class:`CorruptError`."""
    if len(data) != HEADER_SIZE:
        raise CorruptError(f"the file of a table has {HEADER_SIZE} bytes, not {len(data)}", file=path)
    body = data[: _HEADER.size]
    if _CRC.unpack_from(data, _HEADER.size)[0] != crc32c(body):
        raise CorruptError("the checksum of a table's file is wrong", file=path)
    magic, version, synced, owner, device, inode, boot = _HEADER.unpack(body)
    if magic != _MAGIC or version != _VERSION or synced > 1:
        raise CorruptError("it is no file of a table, or one of a newer version", file=path)
    try:
        text = boot.rstrip(b"\0").decode("ascii")
    except UnicodeDecodeError:
        raise CorruptError("the boot id in a table's file is no text", file=path) from None
    return TableHeader(bool(synced), owner, (device, inode), text)


def table_owner(identity: str) -> bytes:
    """Return the digest of a log's identity."""
    return hashlib.blake2b(identity.encode(), digest_size=16, person=b"replog.table").digest()


def encode_table_state(owner: bytes, state: TableState) -> bytes:
    """Return the value of the state's entry."""
    body = _STATE.pack(owner, *state)
    return body + _CRC.pack(crc32c(body))


def decode_table_state(data: bytes, owner: bytes) -> TableState | None:
    """Return the state in the value of its entry; None if it is damaged, or of another owner."""
    if len(data) != _STATE.size + _CRC.size:
        return None
    body = data[: _STATE.size]
    found, offset, epoch, tombstone = _STATE.unpack(body)
    if _CRC.unpack_from(data, _STATE.size)[0] != crc32c(body) or found != owner or offset < 0:
        return None
    return TableState(offset, epoch, tombstone)


def encode_entry(key: bytes, value: bytes | None) -> tuple[bytes, bytes | None]:
    """Return the key and value in the store; None for the value removes it."""
    if len(key) <= _KEY_SIZE_MAX:
        return _SHORT + key, value
    return _long_key(key), None if value is None else _LENGTH.pack(len(key)) + key + value


class TableStore:
    """The files of one table, shared with other processes. Thread-safe: ``lock`` guards it.

    :meth:`look` and :meth:`change` are the two ways in; both keep the lock of the files until they
    end. A change finds the store as it should be, made again if it cannot be trusted.
    """

    def __init__(self, disk: Disk, folder: str, name: str, identity: str) -> None:
        """Open the files of the table ``name`` in ``folder``; missing ones are made at the first change.

        ``identity`` names the log; the files of another one are replaced. Raises
        :class:`StorageError` if this user may not write there.
        """
        self.path = join(folder, table_file_name(name))
        self._store_path = self.path + TABLE_STORE_SUFFIX
        self._disk = disk
        self._owner = table_owner(identity)
        self.lock = disk.new_lock()
        self._file = disk.open_shared(self.path)
        self._store: Store | None = None
        self._identity: tuple[int, int] | None = None
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    # --------------------------------------------------------------------------------- the two ways

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``; None if the table has none. REQUIRES :meth:`change` before."""
        with self.lock:
            store, file = self._store, self._file
            if store is None or self._closed:
                store = self._opened()
            file.lock(shared=True)
            try:
                if len(key) <= _KEY_SIZE_MAX:
                    return store.get_one(_SHORT + key)
                found = store.get_one(_long_key(key))
            finally:
                file.unlock()
        return None if found is None else _long_entry(found, self._store_path)[1]

    def count(self) -> int:
        """Return the number of keys. REQUIRES :meth:`change` before."""
        with self.lock, self._looking():
            return self._opened().count() - 1

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every (key, value), in no promised order. Changes of other callers in between may show."""
        key = _SHORT
        while True:
            with self.lock, self._looking():
                found = self._opened().read_from(key, SLICE_COUNT)
            if not found:
                return
            for name, value in found:
                yield (name[1:], value) if name[:1] == _SHORT else _long_entry(value, self._store_path)
            key = found[-1][0] + b"\0"

    @contextmanager
    def _looking(self) -> Iterator[None]:
        self._file.lock(shared=True)
        try:
            yield
        finally:
            self._file.unlock()

    @contextmanager
    def change(self) -> Iterator[TableState | None]:
        """Keep all others out, and yield the state; None if the table is new, or could not be trusted and is made
        again: then the first :meth:`apply` says where it begins."""
        with self.lock:
            self._check()
            if not self._file.is_current():
                self._reopen()
            self._file.lock()
            try:
                yield self._ready()
            finally:
                self._file.unlock()

    # ------------------------------------------------------------------------------ within a change

    def apply(self, changes: Mapping[bytes, bytes | None], state: TableState) -> None:
        """Set the value of each key (None removes it) together with the state. A kill leaves all or none.

        REQUIRES :meth:`change`. Raises :class:`StorageError`, as on a full disk; then nothing changed.
        """
        store = self._opened()
        if self._is_synced():
            self._mark(is_synced=False)
        entries: list[tuple[bytes, bytes | None]] = [(_STATE_KEY, encode_table_state(self._owner, state))]
        entries += [encode_entry(key, value) for key, value in changes.items()]
        entries.sort(key=_KEY)
        store.write(entries)

    def remake(self) -> None:
        """Replace the store by an empty one. REQUIRES :meth:`change`."""
        self._drop()
        self._make()

    def close(self) -> None:
        """Sync the store if it changed, so that it can be opened after a power loss, and close the files. A second call
        is harmless."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
            try:
                if self._store is not None:
                    self._file.lock()
                    try:
                        if not self._is_synced() and self._is_same():
                            self._store.fill([])
                            self._mark(is_synced=True)
                    finally:
                        self._file.unlock()
            finally:
                if self._store is not None:
                    self._store.close()
                self._file.close()

    # ---------------------------------------------------------------------------------------- trust

    def _ready(self) -> TableState | None:
        """Return the state of the store that the header names, opened if need be; None if it had to be made."""
        if self._store is not None:
            if self._is_same() and (state := self._read_state()) is not None:
                return state
            self._drop_handle()
        state = self._open_trusted()
        if state is None:
            self._drop()
            self._make()
        return state

    def _open_trusted(self) -> TableState | None:
        """Open the store if the header vouches for it, and return its state; None otherwise."""
        try:
            header = read_table_header(self._file.read_at(0, HEADER_SIZE + 1), self.path)
        except CorruptError:
            return None
        status = self._disk.stat(self._store_path)
        boot_id = self._disk.boot_id(parent_of(self.path))
        if status is None or status.is_directory or self._disk.is_link(self._store_path):
            return None
        if status.identity != header.store or header.owner != self._owner:
            return None
        if not header.is_synced and (not boot_id or header.boot_id != boot_id[:40]):
            return None  # a power loss may have left any bytes, which LMDB would believe
        try:
            self._store = self._disk.open_store(self._store_path, write=True)
            self._identity = status.identity
            state = self._read_state()
        except CorruptError:
            state = None
        if state is None:
            self._drop_handle()
        return state

    def _read_state(self) -> TableState | None:
        """Return the state in the store; None if it has none, or that of another table."""
        data = self._opened().get_one(_STATE_KEY)
        return None if data is None else decode_table_state(data, self._owner)

    def _is_same(self) -> bool:
        """Return whether the store's name still means the file that is open."""
        status = self._disk.stat(self._store_path)
        return status is not None and status.identity == self._identity

    def _make(self) -> None:
        """Make an empty store."""
        self._store = self._disk.open_store(self._store_path, write=True)
        status = self._disk.stat(self._store_path)
        if status is None:
            raise StorageError(errno.ENOENT, "the store was removed while it was made", self._store_path)
        self._identity = status.identity
        self._mark(is_synced=False)

    def _drop(self) -> None:
        """Remove the store, whatever it is; the header vouches for nothing from now on."""
        self._drop_handle()
        self._file.write_at(0, bytes(HEADER_SIZE))
        try:
            self._disk.remove(self._store_path)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise

    def _drop_handle(self) -> None:
        store, self._store, self._identity = self._store, None, None
        if store is not None:
            store.close()

    def _mark(self, *, is_synced: bool) -> None:
        """Write durably whether all changes of the store are synced."""
        assert self._identity is not None, "a store is open"
        boot_id = self._disk.boot_id(parent_of(self.path))
        self._file.write_at(0, TableHeader(is_synced, self._owner, self._identity, boot_id).encode())
        self._file.sync()

    def _is_synced(self) -> bool:
        """Return whether the header says so: another process may have closed the store since the last change."""
        return self._file.read_at(_SYNCED_AT, 1) == b"\1"

    def _reopen(self) -> None:
        """Open the small file again, because it was removed or replaced."""
        self._drop_handle()
        self._file.close()
        self._file = self._disk.open_shared(self.path)

    def _opened(self) -> Store:
        self._check()
        assert self._store is not None, "a change comes first"
        return self._store

    def _check(self) -> None:
        if self._closed:
            raise ClosedError(f"the table {self.path} is closed")


def _long_key(key: bytes) -> bytes:
    return _LONG + hashlib.blake2b(key, digest_size=_DIGEST_SIZE).digest()


def _long_entry(value: bytes, path: str) -> tuple[bytes, bytes]:
    """Return (key, value) of the stored ``value`` of a long key."""
    if len(value) < _LENGTH.size or len(value) < _LENGTH.size + _LENGTH.unpack_from(value)[0]:
        raise CorruptError("an entry of the table is damaged: remove the file, and it is made again", file=path)
    end = _LENGTH.size + _LENGTH.unpack_from(value)[0]
    return value[_LENGTH.size : end], value[end:]

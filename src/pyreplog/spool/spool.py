"""The spool in one folder: the files of executors and drivers, and the steps of the log's owner.

Each step is one file that appears by an atomic rename, and is durable before the next step: staged files,
``manifest`` (by the driver, the first one wins), ``taken`` (the owner renames the manifest before it reads it),
``begun`` (renamed again before the first append), ``applied`` (the number of the query's last batch that is in the
log). A driver withdraws a manifest by a rename too; so either the owner or the driver has it, never both.

Drivers hold a query's lock while they publish. The owner is the process that has the log open. This module uses no
threads and no clock.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pyreplog.errors import PyreplogError, SpoolRefusedError, StorageError
from pyreplog.log import SPOOL_PREFIX, join, read_state, write_state
from pyreplog.ports import Disk
from pyreplog.spool.applied import Applied
from pyreplog.spool.fingerprint import Fingerprint, fingerprint_of
from pyreplog.spool.layout import (
    APPLIED,
    BEGUN,
    LOCK,
    MANIFEST,
    REFUSED,
    STAGED,
    TAKEN,
    WITHDRAWN,
    BatchId,
    SpoolName,
    batch_name,
    check_id,
    parse_name,
    query_name,
)
from pyreplog.spool.manifest import Manifest
from pyreplog.spool.staged import AtTheEnd, StagedFile, StagedWriter, Syncs

__all__ = ["ORPHAN_AGE_MS", "Spool", "Waiting"]

ORPHAN_AGE_MS: Final = 7 * 24 * 3600 * 1000
"""A file that no manifest names for this long is removed: the process that staged it has ended."""
_VERSION: Final = "0"  # on disk: never change
_COPIED: Final = "it was restored from a backup, or copied from another query"
_ADVICE: Final = (
    "Go on with the newest checkpoint, or begin a new one behind the rows that are in the log. With option"
    " appliedBatch=keep such a batch is skipped, and its rows are not written"
)
# Each name becomes the next one, and an owner may rename a taken manifest back.
_STANDING: Final = (MANIFEST, TAKEN, MANIFEST, BEGUN)


class Waiting(NamedTuple):
    """One batch that the owner has to append. ``begun``: an owner before this one may have appended some of it."""

    batch_id: BatchId
    begun: bool


class Spool:
    """The spool in ``folder``. Holds nothing but the two: any number may look at the same folder, from any
    process."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder

    @property
    def folder(self) -> str:
        """The folder of the log or of the cluster."""
        return self._folder

    @property
    def disk(self) -> Disk:
        """The disk of the folder."""
        return self._disk

    # ------------------------------------------------------------------------------------ executors

    def stage(self, batch_id: BatchId, task: str, syncs: Syncs | None = None) -> StagedWriter:
        """Begin a staged file. ``task``: the task's number, a hyphen, and what no other attempt ever has.
        ``syncs``: None syncs at the end."""
        return StagedWriter(self._disk, self._folder, check_id(batch_id), task, AtTheEnd() if syncs is None else syncs)

    # -------------------------------------------------------------------------------------- drivers

    def publish(
        self, batch_id: BatchId, files: Sequence[StagedFile], *, once: bool = False, keep: bool = False
    ) -> bool:
        """Make ``files`` the batch, durably, unless it has a manifest already or is applied: whether they are.
        Otherwise they are removed, unless the manifest names the same files.

        ``keep``: a batch that is in :meth:`conflict` counts as published too. Raises :class:`SpoolRefusedError` for
        such a batch otherwise, and :class:`LockedError` while another process publishes for this query.
        """
        check_id(batch_id)
        disk = self._disk
        conflict = ""
        lock = disk.lock(self._path(query_name(batch_id.query, LOCK)), f"the driver of query {batch_id.query}")
        try:
            fingerprint = fingerprint_of(files)
            known, conflict = self._compared(batch_id, fingerprint)
            if not known:
                # Refused before anything was appended: the new attempt takes the place of the old
                # one.
                self._remove([batch_name(batch_id, REFUSED)])
                manifest = Manifest(batch_id, tuple(files), once, fingerprint)
                write_state(disk, self._path(batch_name(batch_id, MANIFEST)), manifest.to_values())
        finally:
            lock.release()
        if known:
            self._discard_others(batch_id, files)
        if conflict and not keep:
            raise SpoolRefusedError(conflict)
        return not known

    def conflict(self, batch_id: BatchId, files: Sequence[StagedFile]) -> str:
        """Return why a batch of ``files`` differs from the batch that the log or the spool has under this number;
        empty if it does not.

        A query repeats only its last batch, and with the same rows. So a lower number, or the same number with
        other rows, comes from a checkpoint that is older than the log or was copied, or from a query that does not
        repeat its rows.
        """
        return self._compared(batch_id, fingerprint_of(files))[1]

    def _compared(self, batch_id: BatchId, fingerprint: Fingerprint | None) -> tuple[bool, str]:
        """Whether the batch is published or applied, and its :meth:`conflict`."""
        # A batch that an owner finishes between these looks is applied in the last one.
        latest = max(self.standing(batch_id.query), default=-1)
        stands = self.stands(batch_id)
        published = self._published(batch_id) if stands else None
        applied = self._applied(batch_id.query)
        latest = max(latest, applied.batch)
        if batch_id.batch < latest:
            done = "was written before" if latest == applied.batch else "was published and waits to be appended"
            return (
                True,
                (
                    f"{batch_id} has a lower number than batch {latest}, which {done}. Only the last batch of a query"
                    f" is run again, so the query's checkpoint is older than the log: {_COPIED} (a batch write: its"
                    f" txnVersion does not rise). {_ADVICE if latest == applied.batch else self._advice_of_waiting()}"
                ),
            )
        waits = batch_id.batch != applied.batch
        if not waits:
            published = applied.fingerprint
        elif not stands:
            return False, ""
        if published is None or fingerprint is None or published == fingerprint:
            return True, ""
        rows = (
            f"{fingerprint.rows} rows, and it had {published.rows}"
            if fingerprint.rows != published.rows
            else "other rows"
        )
        done = "published before and waits to be appended" if waits else "written before"
        return (
            True,
            (
                f"{batch_id} was {done}, and now comes with {rows}. Either the query's checkpoint does not belong to"
                f" the log: {_COPIED}; or the query does not give the same rows when it is run again (rand(), the time,"
                f" a static side that changed). {self._advice_of_waiting() if waits else _ADVICE}"
            ),
        )

    def _advice_of_waiting(self) -> str:
        """What to do about a published batch that is not in the log yet."""
        return (
            f"The next process that opens {self._folder} to write (open_log, Cluster) appends the batch that waits."
            f" After that: {_ADVICE}"
        )

    def note_empty(self, batch_id: BatchId) -> bool:
        """Record durably that a batch without a row is the last of its query, so that its number counts. Return
        False, and record nothing, if a batch of the query waits to be appended: its number would count as appended.

        Raises :class:`LockedError` while another process publishes for this query.
        """
        check_id(batch_id)
        lock = self._disk.lock(self._path(query_name(batch_id.query, LOCK)), f"the driver of query {batch_id.query}")
        try:
            if self.standing(batch_id.query):
                return False
            if self.applied(batch_id.query) < batch_id.batch:
                self._remove([batch_name(batch_id, REFUSED)])
                values = Applied(batch_id.batch, False, Fingerprint(0, 0)).to_values()
                write_state(self._disk, self._path(query_name(batch_id.query, APPLIED)), values)
        finally:
            lock.release()
        return True

    def standing(self, query: str) -> set[int]:
        """The numbers of the query's batches that have a manifest."""
        found: set[int] = set()
        for _ in range(2):  # a listing may miss a file that an owner renames during it
            found |= {name.batch for name in self._names() if name.query == query and name.kind in _STANDING}
        return found

    def _published(self, batch_id: BatchId) -> Fingerprint | None:
        """The fingerprint in the batch's manifest; None if it has none, or is gone."""
        for kind in _STANDING:
            try:
                return self._manifest(batch_name(batch_id, kind)).fingerprint
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
        return None

    def answered(self, batch_id: BatchId) -> bool:
        """Whether the batch is in the log. Raises :class:`SpoolRefusedError` where the owner refused it: nothing of
        it is."""
        if self.applied(batch_id.query) >= batch_id.batch:
            return True
        refusal = self._read(self._path(batch_name(batch_id, REFUSED)))
        if refusal is not None:
            raise SpoolRefusedError(refusal.get("reason", "no reason was given"))
        return False

    def withdraw(self, batch_id: BatchId) -> bool:
        """Withdraw a published batch. True: no row of it will be appended. False: an owner has begun or finished
        it."""
        if self.applied(batch_id.query) >= batch_id.batch:
            return False
        withdrawn = batch_name(batch_id, WITHDRAWN)
        if not self._rename(batch_name(batch_id, MANIFEST), withdrawn):
            return not self.stands(batch_id) and self.applied(batch_id.query) < batch_id.batch
        self._disk.sync_directory(self._folder)
        manifest = self._manifest(withdrawn)
        self._remove([*(file.name for file in manifest.files), withdrawn])
        return True

    def discard(self, files: Iterable[StagedFile]) -> None:
        """Remove staged files that no manifest names."""
        self._remove([file.name for file in files])

    def abandon(self, batch_id: BatchId, files: Sequence[StagedFile], *, once: bool) -> None:
        """Remove the staged files of a write that failed, unless they were published. ``once``: also the files that
        no task reported, because no other attempt will use them."""
        if self.stands(batch_id) or self.applied(batch_id.query) >= batch_id.batch:
            return
        doomed = {file.name for file in files}
        if once:
            doomed |= {name for name in self._listed() if (found := parse_name(name)) and found.query == batch_id.query}
        self._remove(sorted(doomed))

    def forget(self, query: str) -> None:
        """Remove the state of a query whose batches are applied and which will not run again. REQUIRES that no
        batch :meth:`stands`: an owner that finds one would apply it again."""
        # The owner removed files without a sync: power loss may bring them back without the file
        # that says that they were applied.
        self._disk.sync_directory(self._folder)
        self._remove([query_name(query, APPLIED), query_name(query, LOCK)])

    def stands(self, batch_id: BatchId) -> bool:
        """Whether the batch has a manifest that counts."""
        # In this order. Gone between the looks is applied, and the owner knows a batch that is
        # applied.
        return any(self._disk.stat(self._path(batch_name(batch_id, kind))) is not None for kind in _STANDING)

    def _discard_others(self, batch_id: BatchId, files: Sequence[StagedFile]) -> None:
        kept: set[str] = set()
        for kind in _STANDING:
            try:
                manifest = self._manifest(batch_name(batch_id, kind))
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
            else:
                kept |= {file.name for file in manifest.files}
        self._remove([file.name for file in files if file.name not in kept])

    # ---------------------------------------------------------------------------------------- owner

    def waiting(self) -> list[Waiting]:
        """Return the batches to append: first those that were begun, then by query and number. Cheap if there are
        none."""
        found: dict[BatchId, bool] = {}
        for name in self._names():
            if name.kind in _STANDING:
                batch_id = BatchId(name.query, name.batch)
                found[batch_id] = found.get(batch_id, False) or name.kind == BEGUN
        order = sorted(found, key=lambda batch_id: (not found[batch_id], batch_id))
        return [Waiting(batch_id, found[batch_id]) for batch_id in order]

    def take(self, batch_id: BatchId) -> Manifest | None:
        """Take the batch, so that its driver can neither withdraw it nor publish another, and return its manifest;
        None if it no longer exists. Call :meth:`begin`, :meth:`refuse` or :meth:`give_back` next."""
        taken = batch_name(batch_id, TAKEN)
        if not self._rename(batch_name(batch_id, MANIFEST), taken) and self._disk.stat(self._path(taken)) is None:
            return None
        try:
            manifest = self._manifest(taken)
            if self._disk.stat(self._path(batch_name(batch_id, REFUSED))) is None:
                return manifest
        except BaseException:
            self.give_back(batch_id)
            raise
        # An owner before this one was stopped when it had said no.
        self._remove([*(file.name for file in manifest.files), taken])
        return None

    def give_back(self, batch_id: BatchId) -> None:
        """Undo :meth:`take`."""
        self._rename(batch_name(batch_id, TAKEN), batch_name(batch_id, MANIFEST))

    def begin(self, batch_id: BatchId) -> None:
        """From here on something of the batch, which was taken, may be in the log. Durable when it returns."""
        self._disk.rename(self._path(batch_name(batch_id, TAKEN)), self._path(batch_name(batch_id, BEGUN)))
        self._disk.sync_directory(self._folder)

    def begun(self, batch_id: BatchId) -> Manifest | None:
        """Return the manifest of a batch that was begun; None if it was not begun, or is finished."""
        try:
            return self._manifest(batch_name(batch_id, BEGUN))
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return None
            raise

    def confirm(self, name: str) -> None:
        """Write the existing state file ``name`` again and durably: the process that wrote or renamed it may have
        been killed before its sync, or its sync may have failed."""
        values = self._read(self._path(name))
        if values is not None:
            write_state(self._disk, self._path(name), values)

    def finish(self, manifest: Manifest) -> None:
        """Record durably that the whole batch is in the log, then remove its files."""
        query, batch = manifest.batch_id
        applied = Applied(batch, manifest.once, manifest.fingerprint)
        write_state(self._disk, self._path(query_name(query, APPLIED)), applied.to_values())
        self.tidy(query)

    def refuse(self, manifest: Manifest, reason: str) -> None:
        """Refuse a taken batch: no row of it is or will be appended. Record the reason, and remove its files."""
        batch_id = manifest.batch_id
        reason = " ".join(reason.split())
        write_state(self._disk, self._path(batch_name(batch_id, REFUSED)), {"version": _VERSION, "reason": reason})
        self._remove([*(file.name for file in manifest.files), batch_name(batch_id, TAKEN)])

    def tidy(self, query: str) -> None:
        """Remove whatever belongs to batches of ``query`` that are applied: left by an owner that was stopped, by
        attempts that lost."""
        applied = self.applied(query)
        doomed = [
            name
            for name in self._listed()
            if (found := parse_name(name)) and found.query == query and 0 <= found.batch <= applied
        ]
        # The manifest is removed before its files, so a remaining manifest never names missing
        # files.
        doomed.sort(key=lambda name: name.endswith(STAGED))
        self._remove(doomed)

    def sweep(self, now_ms: int) -> int:
        """Remove abandoned files: staged files without a manifest, refusals that no driver read, the state of
        queries with a single batch, and temporary files, all older than :data:`ORPHAN_AGE_MS`. Return their number.
        Staged files of existing manifests are kept."""
        names = self._listed()
        parsed = {name: parse_name(name) for name in names}
        standing = {
            (found.query, found.batch) for found in parsed.values() if found is not None and found.kind in _STANDING
        }
        doomed = []
        for name, found in parsed.items():
            stat = self._disk.stat(self._path(name))
            if stat is None or now_ms - stat.mtime_ms < ORPHAN_AGE_MS:
                continue
            if found is None:
                doomed.append(name)  # the temporary file of one of these
            elif found.kind in (STAGED, REFUSED, WITHDRAWN):
                if (found.query, found.batch) not in standing:
                    doomed.append(name)
            elif (
                found.kind == APPLIED
                and (found.query, 0) not in standing
                and (self._read(self._path(name)) or {}).get("once") == "true"
            ):
                doomed += [name, query_name(found.query, LOCK)]
        self._remove([name for name in doomed if name in parsed])
        return len(doomed)

    # ---------------------------------------------------------------------------------------- files

    def applied(self, query: str) -> int:
        """The number of the query's last batch that is in the log; -1 before the first."""
        return self._applied(query).batch

    def _applied(self, query: str) -> Applied:
        path = self._path(query_name(query, APPLIED))
        values = self._read(path)
        return Applied(-1) if values is None else Applied.from_values(values, path)

    def _listed(self) -> list[str]:
        return [name for name in self._disk.list(self._folder) if name.startswith(SPOOL_PREFIX)]

    def _names(self) -> list[SpoolName]:
        return [found for name in self._listed() if (found := parse_name(name)) is not None]

    def _path(self, name: str) -> str:
        return join(self._folder, name)

    def _manifest(self, name: str) -> Manifest:
        path = self._path(name)
        values = self._read(path)
        if values is None:
            raise StorageError(errno.ENOENT, "no such manifest", path)
        return Manifest.from_values(values, path)

    def _read(self, path: str) -> dict[str, str] | None:
        """A state file that others replace or remove at any moment."""
        try:
            return read_state(self._disk, path)
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return None
            raise

    def _rename(self, source: str, target: str) -> bool:
        try:
            self._disk.rename(self._path(source), self._path(target))
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return False
            raise
        return True

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                self._disk.remove(self._path(name))
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise


def reason_of(error: PyreplogError) -> str:
    """Return the content of a refusal: the type of the error and its text."""
    return f"{type(error).__name__}: {error}"

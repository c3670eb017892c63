"""Every exception pyreplog raises, in one tree.

Each class keeps the facts a handler needs as attributes, and its text says what happened, where, and what to do
next. A class also inherits the builtin exception that describes the same failure, if Python has one, so that
``except OSError`` or ``except ValueError`` keeps meaning what people expect.

Texts never echo more than 64 bytes of foreign input: see :func:`excerpt`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from copy import copy
from io import UnsupportedOperation
from typing import Any, ClassVar, Final, NoReturn, TypeVar

__all__ = [
    "BackupDivergedError",
    "BatchTooLargeError",
    "BrokerNotAvailableError",
    "BufferExhaustedError",
    "ClosedError",
    "ClusterError",
    "ConfigError",
    "CorruptError",
    "CorruptLogError",
    "DamagedRecordsWarning",
    "DataLossError",
    "DuplicateSequenceError",
    "DuplicateVoterError",
    "EligibleLeadersNotAvailableError",
    "FencedEpochError",
    "ForkedError",
    "InconsistentClusterIdError",
    "IneligibleReplicaError",
    "InternalError",
    "InvalidPartitionsError",
    "InvalidRecordError",
    "InvalidRecordStateError",
    "InvalidProducerEpochError",
    "InvalidReplicationFactorError",
    "InvalidReplicaAssignmentError",
    "InvalidRequestError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTransactionStateError",
    "InvalidUpdateVersionError",
    "InvalidVoterKeyError",
    "KafkaStorageError",
    "LeaderNotAvailableError",
    "LocalProtocolError",
    "LockedError",
    "LogTruncatedError",
    "MessageTooLargeError",
    "NoThreadError",
    "NotControllerError",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "NotLeaderError",
    "DeserializationError",
    "NoReassignmentInProgressError",
    "NoRecordError",
    "UnkeyedRecordError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "OutcomeUnknownError",
    "PreferredLeaderNotAvailableError",
    "ProtocolError",
    "QuorumLostError",
    "PyreplogError",
    "ReadOnlyError",
    "ReentrantCallError",
    "RecordsDeletedError",
    "RemoteProtocolError",
    "RequestTimedOutError",
    "SpoolDamagedError",
    "SpoolRefusedError",
    "StorageError",
    "StorageExistsError",
    "StorageIsADirectoryError",
    "StorageNotADirectoryError",
    "StorageNotFoundError",
    "StoragePermissionError",
    "TopicExistsError",
    "TopicRecreatedError",
    "UnexpectedAppendOffsetError",
    "UnfinishedBackupError",
    "UnknownLeaderEpochError",
    "UnknownProducerIdError",
    "UnknownServerError",
    "UnknownTopicError",
    "UnknownTopicIdError",
    "UnsupportedVersionError",
    "UnsyncedError",
    "VoterNotFoundError",
    "cluster_error",
    "copy_for_raise",
    "excerpt",
    "for_python",
    "raise_for_status",
    "worded",
]

EXCERPT_SIZE_MAX: Final = 64
_SEGMENT_DIGITS: Final = 20


class PyreplogError(Exception):
    """Base of all errors raised by pyreplog. It has no text of its own. Every error can be pickled and sent to
    another process."""

    command_text: str | None = None
    """The text for a user of the ``replog`` command, if it differs: with options in place of Python's
    arguments. For an OSError it replaces ``strerror``."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what ``copy`` and ``pickle`` need. They do not call ``__init__``, which would make the text
        again."""
        parts: Any = super().__reduce__()
        return (_remade, parts[:2], *parts[2:])


def _remade(kind: type[PyreplogError], arguments: tuple[object, ...]) -> PyreplogError:
    error = kind.__new__(kind, *arguments)
    (OSError if issubclass(kind, OSError) else Exception).__init__(error, *arguments)
    return error


class CorruptError(PyreplogError, ValueError):
    """Bytes are wrong: checksum, magic, length, count or order.

    ``file`` is the path if known, ``position`` the byte in it (or in the buffer) where the bad structure starts.
    If the file is one of a partition's segments, ``partition`` is the partition (``"orders-0"``) and ``offset`` the
    first offset in doubt; else they are None.
    """

    def __init__(
        self,
        reason: str,
        *,
        file: str | None = None,
        position: int | None = None,
        partition: str | None = None,
        offset: int | None = None,
    ) -> None:
        self.reason = reason
        self.file = file
        self.position = position
        self.partition = partition or (_partition_of(file) if file is not None else None)
        self.offset = offset
        where = "" if file is None else f" in {file}"
        at = "" if position is None else f" at byte {position}"
        place = [self.partition] if self.partition is not None else []
        if offset is not None:
            place.append(f"offset {offset}")
        of = f" ({', '.join(place)})" if place else ""
        super().__init__(f"{reason}{where}{at}{of}")


def _partition_of(file: str) -> str | None:
    """Return the partition of a segment's file: the name of its folder. None if the file's name is not 20
    digits."""
    folder, _, name = file.rpartition("/")
    digits, dot, _ = name.partition(".")
    return folder.rpartition("/")[2] or None if dot and len(digits) == _SEGMENT_DIGITS and digits.isdigit() else None


_RESTORE: Final = (
    "Restore this partition folder from another replica or a backup; if there is none, `replog repair` shows what"
    " can be saved"
)
_CUT_SHORT: Final = (
    "A copy ends like this if it is made file by file (cp, rsync, tar) while a program appends, and so does a log whose"
    " disk lost synced bytes. Copy a log in use with `replog backup SOURCE TARGET`; `replog repair COPY --to NEW`"
    " saves this copy as far as it reaches and says how many offsets the mark promised"
)


class CorruptLogError(CorruptError):
    """Damage below the durable mark: acknowledged records can no longer be read from this copy.

    ``start`` and ``end`` are the damaged offsets (half-open); all others are intact. ``offset`` is ``start``.
    ``ends``: the log ends at ``start``, before the end that its mark promises, so no record behind the damage can
    be read.
    """

    def __init__(
        self,
        reason: str,
        *,
        start: int,
        end: int,
        file: str | None = None,
        position: int | None = None,
        partition: str | None = None,
        ends: bool = False,
    ) -> None:
        super().__init__(reason, file=file, position=position, partition=partition)
        self.start = self.offset = start
        self.end = end
        self.args = (
            (
                f"{self.args[0]}: offsets {start} to {end - 1} are damaged; nothing was cut."
                f" {_CUT_SHORT if ends else _RESTORE}"
            ),
        )


class UnfinishedBackupError(PyreplogError):
    """The folder is a backup that was not finished, so it may lack records of its source.

    ``folder`` is the backup, ``source`` the folder that it copies ("" if that cannot be read)."""

    def __init__(self, folder: str, source: str) -> None:
        self.folder = folder
        self.source = source
        super().__init__(
            f"{folder} is a backup of {source or 'another folder'} that is not finished: run `replog backup"
            f" {source or 'SOURCE'} {folder}` until it ends; if the source is gone, `replog repair {folder} --to NEW`"
            " saves the segments that were copied whole"
        )


class BackupDivergedError(PyreplogError):
    """A backup holds records that its source lacks: the source lost them, was restored from an older copy, or a
    program appended to the backup.

    Nothing was changed in the backup. ``source`` and ``backup`` are the partition's two folders, ``offset`` is
    the first offset at which they differ.
    """

    def __init__(self, partition: str, source: str, backup: str, offset: int, why: str) -> None:
        self.source = source
        self.backup = backup
        self.offset = offset
        super().__init__(
            f"the backup of {partition} in {backup} is not the beginning of {source}: {why}. Keep this backup, which"
            " may be the only copy of these records, and make another one into a new folder"
        )


class DamagedRecordsWarning(UserWarning):
    """A reader with ``skip_damaged=True`` left out a range of damaged records. ``error`` is the
    :class:`CorruptLogError` of the range."""

    def __init__(self, error: CorruptLogError) -> None:
        self.error = error
        super().__init__(f"left out: {error}")


class BatchTooLargeError(PyreplogError, ValueError):
    """A compressed batch unpacks to more bytes than a reader accepts. The batch itself is not known to be damaged.

    ``offset`` is its first offset, ``limit`` the bytes that the reader accepts, ``setting`` the setting that raises
    the limit. ``partition`` is the partition (``"orders-0"``), ``file`` the path and ``position`` the byte in it at
    which the batch begins, if known.
    """

    setting: Final = "max_batch_bytes"

    def __init__(
        self,
        offset: int | None,
        limit: int,
        *,
        partition: str | None = None,
        file: str | None = None,
        position: int | None = None,
    ) -> None:
        self.offset = offset
        self.limit = limit
        self.partition = partition
        self.file = file
        self.position = position
        at = "" if offset is None else f" at offset {offset}"
        of = "" if partition is None else f" of {partition}"
        where = "" if file is None else f" in {file} at byte {position}"
        super().__init__(
            f"the batch{at}{of}{where} takes more than {limit} bytes when it is unpacked, the limit {self.setting}: "
            f"raise {self.setting} (--max-batch-bytes of commands, maxBatchBytes of Spark) to read the batch"
        )

    def placed(self, place: CorruptError) -> BatchTooLargeError:
        """Return the same error with the partition, file and position of ``place``."""
        partition = place.partition or self.partition
        return BatchTooLargeError(
            self.offset, self.limit, partition=partition, file=place.file, position=place.position
        )


class UnexpectedAppendOffsetError(CorruptError):
    """A batch fetched from a leader does not follow the log. ``first_offset`` and ``last_offset`` are its own,
    ``end_offset`` is the end of the log before it. Nothing was appended."""

    def __init__(
        self, reason: str, *, first_offset: int, last_offset: int, end_offset: int, position: int | None = None
    ) -> None:
        super().__init__(
            f"{reason} (it has offsets {first_offset} to {last_offset}, expected {end_offset})", position=position
        )
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.end_offset = end_offset


class _ByErrno(type):
    """Turns a call of :class:`StorageError` into one of the subclass for its errno, as Python does with OSError.

    A ``__new__`` would not do: with another one than its own, OSError takes the arguments of every subclass's
    ``__init__`` as errno and text."""

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        kind = _BY_ERRNO.get(arguments[0], cls) if cls is StorageError and arguments else cls
        return type.__call__(kind, *arguments, **named)

    @property
    def __signature__(cls) -> Any:
        """Return the parameters of ``__init__`` for ``help()``, which cannot find them behind a metaclass."""
        from inspect import signature  # noqa: PLC0415  (only for people)

        whole = signature(cls.__init__)  # type: ignore[misc]
        return whole.replace(parameters=[one for name, one in whole.parameters.items() if name != "self"])


_ADVICE: Final = {
    errno.ENOSPC: "free some room, by deleting records too, and go on",
    errno.EDQUOT: "free some room, by deleting records too, or have the quota raised, and go on",
    errno.EMFILE: "raise the limit of open files, `ulimit -n`",
    errno.ENFILE: "the whole system has too many files open",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.EFBIG: "raise the limit of file sizes, `ulimit -f`",
}


_check_interruption: Callable[[BaseException], bool] | None = None


def install_interruption_check(check: Callable[[BaseException], bool]) -> None:
    """Have :func:`is_interruption` ask ``check``. The room that knows signals calls this."""
    global _check_interruption
    _check_interruption = check


def is_interruption(error: BaseException) -> bool:
    """Return whether one of the program's signal handlers raised ``error``.

    Such an error says nothing about the work that it interrupted, and must reach the caller. Only a
    clause that catches more than pyreplog's own errors has to ask. Always False before
    ``pyreplog.system`` was loaded.
    """
    return _check_interruption is not None and _check_interruption(error)


class StorageError(PyreplogError, OSError, metaclass=_ByErrno):
    """A call of the file system failed. It keeps ``errno`` and ``filename``. For each subclass of OSError that
    Python has for an errno there is a subclass of this error.

    After a failed sync the log is poisoned: it acknowledges no record until it is opened again and verified.
    """

    @classmethod
    def from_os_error(cls, error: OSError, doing: str, path: str) -> StorageError:
        """Return the same failure with the action ``doing`` in its text:
        ``[Errno 28] No space left ... while appending``.

        An error that a signal handler raised (a TimeoutError, for example), or one without a number, is not the
        system's: it is raised unchanged."""
        if error.errno is None or is_interruption(error):
            raise error
        advice = _ADVICE.get(error.errno, "")
        return cls(error.errno, f"{error.strerror or error} while {doing}{advice and f' ({advice})'}", path)


class StorageNotFoundError(StorageError, FileNotFoundError):
    """No such file or folder; for ``open_log(path, "r")``: no log is there."""


class StoragePermissionError(StorageError, PermissionError):
    """The system does not allow the access: check the owner and the mode of the folder and of its files."""


class StorageExistsError(StorageError, FileExistsError):
    """A file or folder of that name exists already."""


class StorageNotADirectoryError(StorageError, NotADirectoryError):
    """The path is a file and should be a folder."""


class StorageIsADirectoryError(StorageError, IsADirectoryError):
    """The path is a folder and should be a file."""


_BY_ERRNO: Final[dict[object, type[StorageError]]] = {
    errno.ENOENT: StorageNotFoundError,
    errno.EACCES: StoragePermissionError,
    errno.EPERM: StoragePermissionError,
    errno.EEXIST: StorageExistsError,
    errno.ENOTDIR: StorageNotADirectoryError,
    errno.EISDIR: StorageIsADirectoryError,
}


class LockedError(StorageError):
    """Another writer holds this folder.

    ``holder`` is the text that the writer left about itself: pid, host, start time. The
    other arguments are advice: ``reading`` and ``waiting`` for Python, ``in_command`` for the
    ``replog`` command.
    """

    def __init__(
        self,
        path: str,
        holder: str,
        name: str = "the folder",
        *,
        reading: str = "read it with mode='r'",
        waiting: str = "wait for it with lock_timeout=SECONDS",
        in_command: str = "read it with `replog cat`, wait for it with --lock-timeout SECONDS",
        held: str = "is already open for writing",
        waited_s: float = 0,
    ) -> None:
        way_out = (
            "close the object that has it open (`with` does)"
            if holder.startswith("this process")
            else "stop that process"
        )
        waited = f", also after {waited_s:g} s" if waited_s else ""
        text = f"{name} {held} by {holder}{waited}"
        super().__init__(errno.EAGAIN, f"{text}; {reading}, {waiting}, or {way_out}", path)
        self.command_text = f"{text}; {in_command}, or {way_out}"
        self.holder = holder


class OffsetOutOfRangeError(PyreplogError, LookupError):
    """The requested offset is not in the log. The log has the offsets from ``start`` up to ``end``, exclusive."""

    def __init__(self, asked: int, start: int, end: int, *, log: str = "the log") -> None:
        self.asked = asked
        self.start = start
        self.end = end
        super().__init__(f"offset {asked} is outside {log}, which holds offsets {start} up to (not including) {end}")


class DeserializationError(PyreplogError, ValueError):
    """A deserializer of a consumer raised; ``__cause__`` has its exception.

    The consumer's position stays at the record (``topic``, ``partition``, ``offset``), so every read raises this again.
    ``consumer.seek(topic, partition, offset + 1)`` goes on behind it. ``field`` is ``"key"`` or ``"value"``.
    """

    def __init__(self, topic: str, partition: int, offset: int, field: str, cause: BaseException) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.field = field
        super().__init__(
            f"the {field} of the record at offset {offset} of {topic}-{partition} cannot be deserialized:"
            f" {type(cause).__name__}: {cause}. seek({topic!r}, {partition}, {offset + 1}) goes on behind it"
        )


class UnkeyedRecordError(PyreplogError, ValueError):
    """A table met a record without a key at ``offset`` of ``topic``-``partition``, so it cannot say which value the
    record replaces."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        super().__init__(
            f"the record at offset {offset} of {topic}-{partition} has no key, so a table cannot hold it; a table needs"
            " a log whose records all have keys"
        )


class NoRecordError(PyreplogError, IndexError):
    """``log[offset]``: the log has no record there."""


class DataLossError(PyreplogError, LookupError):
    """Records that a named reader or a Spark query must read next no longer exist. The three subclasses say why. A
    named reader goes on after a seek, or with ``on_data_loss``; Spark skips them with ``failOnDataLoss`` false.

    Of a named reader, ``committed`` is its next offset, and ``found`` the offset at which the log begins or ends. They
    are None for Spark.
    """

    committed: int | None = None
    found: int | None = None

    def __init__(
        self,
        what: str,
        advice: str = "Ask for existing offsets, or set the option failOnDataLoss to false to skip the missing ones",
    ) -> None:
        super().__init__(f"{what}. {advice}")
        self.what = what


class RecordsDeletedError(DataLossError):
    """The records were removed by retention or by hand: the log begins later, or the partition no longer exists."""


class LogTruncatedError(DataLossError):
    """The log ends before the requested offset: the records were never written, or were truncated."""


class TopicRecreatedError(DataLossError):
    """The topic was deleted and created again: the same offsets have other records."""


class ConfigError(PyreplogError, ValueError):
    """A setting or an argument is unknown, of the wrong type, out of its limits, or contradicts the stored
    state."""


class ClosedError(PyreplogError):
    """The object was closed, or its log is poisoned by an earlier failure (which is then the cause)."""


class ReadOnlyError(ClosedError, UnsupportedOperation):
    """The log was opened with ``mode="r"`` and cannot be written, like a file that is open for reading."""


class ProtocolError(PyreplogError):
    """Abstract: a message breaks the protocol. See the two children."""


class LocalProtocolError(ProtocolError):
    """You tried to send something the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The other side sent something the protocol does not allow."""


class ForkedError(PyreplogError):
    """The object belongs to the parent process, and this process is a fork of it: open the log or cluster again
    here."""


class QuorumLostError(PyreplogError):
    """The cluster cannot start, because a majority of its voters cannot. The text says which are missing, and the
    command that goes on without them."""


class InternalError(PyreplogError):
    """A bug of pyreplog. Please report it with the seed or the file named in the text."""


class NoThreadError(PyreplogError, RuntimeError):
    """The system cannot start a thread. The call did not begin; records that were acknowledged before are safe."""

    def __init__(self, purpose: str) -> None:
        advice = "raise the limit of processes and threads (`ulimit -u`, a container's pids limit), or end some"
        super().__init__(f"no thread can be started {purpose}: {advice}")


class ReentrantCallError(PyreplogError, RuntimeError):
    """A signal handler, a ``__del__`` or a weak reference's callback used a log or a cluster within another use of
    it by the same thread. The outer use cannot go on before the inner one returns. The inner call had no effect:
    let another thread make it, or make it after the handler returned."""


class BufferExhaustedError(PyreplogError, TimeoutError):
    """The unsynced bytes have filled ``buffer_memory``, and a wait of ``max_block_ms`` did not help. Nothing was
    appended.

    ``waiting`` and ``allowed`` are bytes.
    """

    def __init__(self, waiting: int, allowed: int, waited_ms: float) -> None:
        self.waiting = waiting
        self.allowed = allowed
        super().__init__(
            f"{waiting} bytes wait for the disk, of {allowed} allowed, and {waited_ms:.0f} ms made no room; nothing was"
            " appended. Try again later, or raise buffer_memory or max_block_ms"
        )


class OutcomeUnknownError(PyreplogError):
    """It is not known whether the records were appended. ``tried`` describes the attempt.

    Read the log from the last known offset to find out.
    """

    def __init__(self, tried: str, reason: str = "") -> None:
        self.tried = tried
        super().__init__(
            f"outcome unknown: {tried}{': ' + reason if reason else ''}. "
            "The records may or may not appear; read the log to find out before sending them again"
        )


class UnsyncedError(OutcomeUnknownError, StorageError, ClosedError):
    """The records were written, but the sync after that failed, in this call or in another one. They may or may not
    be in the log when it is opened again. ``errno`` and ``filename`` are those of the sync. The log is poisoned,
    unless the sync could not even begin."""

    def __init__(self, tried: str, error: Exception) -> None:
        code, why, name = (
            (error.errno, error.strerror, error.filename) if isinstance(error, OSError) else (None, error, None)
        )
        OSError.__init__(
            self,
            code,
            f"outcome unknown: {tried}: written, but not known to be on stable storage ({why}). The records may or may"
            " not be there when the log is opened again; read it to find out before sending them again",
            name,
        )
        self.tried = tried

    def __str__(self) -> str:
        # OSError's text begins with the errno, which is missing here.
        return super().__str__() if self.errno is not None else str(self.strerror)


class InvalidRecordStateError(PyreplogError):
    """A queue's records cannot be accepted, released, rejected or renewed, because this worker does not have them any
    more: it settled them before, or their lock ended and another worker has them. Nothing was changed, also not for
    the other records of the same call.

    ``offsets`` are the offsets of those records.
    """

    def __init__(self, doing: str, offsets: list[int], queue: str) -> None:
        self.offsets = offsets
        shown = ", ".join(map(str, offsets[:10])) + (" ..." if len(offsets) > 10 else "")
        super().__init__(
            f"{doing}: this worker of {queue} does not have offset{'' if len(offsets) == 1 else 's'} {shown} any more;"
            " nothing was changed. The records were settled before, or were kept for longer than their lock: renew"
            " records that take long, and call again without these"
        )


class SpoolRefusedError(PyreplogError):
    """A batch of the Spark sink was refused, and none of its rows was appended. Either the owner of the log refused
    it, or no owner took it in time, or the query wrote other rows under this batch number before (option
    ``appliedBatch``)."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}. Nothing of the batch was appended")


class SpoolDamagedError(PyreplogError):
    """A staged file of the Spark sink was damaged after the log's owner began to append its batch: a part of the
    batch may be in the log.

    ``begun`` is the file that makes the batch wait, and with it the later batches of its query."""

    def __init__(self, reason: str, begun: str) -> None:
        self.reason = reason
        self.begun = begun
        super().__init__(
            f"{reason}. A part of its batch may be in the log, and later batches of the query wait for it. Put the file"
            f" back from a copy; or remove {begun} and run the query again: it writes the batch again, and the log"
            " skips the part that it has, provided the tasks are the same"
        )


class ClusterError(PyreplogError):
    """An error that a node or the controller returned. ``code`` is Kafka's error number, ``retriable`` whether
    another try can help."""

    code: int = -1
    retriable: ClassVar[bool] = False
    #: The text of an error without details.
    about: ClassVar[str] = "the cluster answered"

    def __init__(self, details: str = "") -> None:
        super().__init__(f"{self.about}{': ' + details if details else ''}")


class UnknownServerError(ClusterError):
    """A request met a bug of pyreplog: please report it.

    The node goes on, and the logger ``pyreplog.node`` has the traceback, at ERROR. An append raises
    :class:`OutcomeUnknownError` instead, unless it is known that no record was appended."""

    code = -1
    about = "an unexpected error (please report it; the log has the traceback)"


class InvalidTopicError(ClusterError, ValueError):
    """A topic name outside ``[A-Za-z0-9._-]{1,249}``, or ``.`` or ``..``."""

    code = 17
    about = "invalid topic name"


class UnknownTopicError(ClusterError, LookupError):
    """No such topic or partition."""

    code = 3
    retriable = True
    about = "unknown topic or partition"


class UnknownTopicIdError(UnknownTopicError):
    """No topic has this id, although a topic of the same name may exist: the topic was deleted, and perhaps created
    again. A node that has just started returns this error until it has received its topics."""

    code = 100
    about = "the topic was deleted, and perhaps created again"


class TopicExistsError(ClusterError):
    """A topic of that name exists already. ``create_topic(..., exist_ok=True)`` accepts it if its partitions,
    replicas and settings are those of the call."""

    code = 36
    about = "topic exists already"


class InvalidReplicaAssignmentError(ClusterError):
    """The nodes that were given for the replicas of a partition do not exist, or one is named twice."""

    code = 39
    about = "invalid replicas"


class InvalidPartitionsError(ClusterError, ValueError):
    """A number of partitions that a topic cannot have: fewer than it has, or too many."""

    code = 37
    about = "invalid number of partitions"


class InvalidReplicationFactorError(ClusterError, ValueError):
    """More replicas than there are nodes, or none."""

    code = 38
    about = "invalid replication factor"


class LeaderNotAvailableError(ClusterError):
    """The partition has no leader now: every replica that may lead is down."""

    code = 5
    retriable = True
    about = "no leader"


class NotLeaderError(ClusterError):
    """The node asked does not lead the partition (any more)."""

    code = 6
    retriable = True
    about = "not the leader of this partition"


class RequestTimedOutError(ClusterError, TimeoutError):
    """No answer came in time: no node that could answer is up, or the work takes longer. An append raises
    :class:`OutcomeUnknownError` instead."""

    code = 7
    retriable = True
    about = "request timed out"


class BrokerNotAvailableError(ClusterError):
    """No node can answer: every node that could is down or fenced."""

    code = 8
    retriable = True
    about = "no node available"


class MessageTooLargeError(ClusterError, ValueError):
    """A batch larger than ``max.message.bytes``, or than a segment (``segment.bytes``)."""

    code = 10
    about = "message too large"


class InvalidTimestampError(ClusterError, ValueError):
    """A record's timestamp is outside ``message.timestamp.before.max.ms`` or ``message.timestamp.after.max.ms``, or
    beyond the year 9999, such as a time in ns. Nothing was appended."""

    code = 32
    about = "timestamp out of bounds"


class NotEnoughReplicasError(ClusterError):
    """Fewer in-sync replicas than ``min.insync.replicas``. Nothing was appended: retrying is safe."""

    code = 19
    retriable = True
    about = (
        "fewer in-sync replicas than min.insync.replicas, as nodes are down or behind (the logger `pyreplog.node` says"
        " why one is behind); nothing was appended"
    )


class NotEnoughReplicasAfterAppendError(ClusterError):
    """Appended, but not known to be on enough replicas. Clients see :class:`OutcomeUnknownError`."""

    code = 20
    retriable = True
    about = "appended, but too few in-sync replicas have it"


class NotControllerError(ClusterError):
    """The node asked is not the active controller."""

    code = 41
    retriable = True
    about = "not the controller"


class InvalidRequestError(ClusterError, ValueError):
    """The request contradicts itself or the cluster's state."""

    code = 42
    about = "invalid request"


class InvalidRecordError(InvalidRequestError):
    """A record that its topic does not take: it has no key, and the topic is compacted. Nothing was appended, also no
    other record of its batch."""

    code = 87
    about = "invalid record"


class OutOfOrderSequenceError(ClusterError):
    """A batch's sequence does not follow the last one of its producer: a batch before it is missing."""

    code = 45
    about = "out of order sequence number"


class DuplicateSequenceError(OutOfOrderSequenceError):
    """A batch older than those remembered for its producer was sent again. It is in the log, but its offset is not
    known."""

    code = 46
    about = "duplicate sequence number"


class InvalidProducerEpochError(ClusterError):
    """The batch has an older epoch than its producer: a newer instance of the producer has replaced its sender.
    Nothing was appended."""

    code = 47
    about = "invalid producer epoch"


class InvalidTransactionStateError(ClusterError):
    """The producer has a transaction open in this log, and the batch is not part of one."""

    code = 48
    about = "invalid transaction state"


class UnknownProducerIdError(ClusterError):
    """The log does not know this producer, and the batch is not its first one. Begin again at sequence 0 with a
    higher epoch, after the outcome of all earlier batches is known."""

    code = 59
    about = "unknown producer id"


class NoReassignmentInProgressError(ClusterError):
    """No reassignment of the partition goes on, so there is none to cancel: it is complete, or none began."""

    code = 85
    about = "no reassignment goes on"


class PreferredLeaderNotAvailableError(ClusterError):
    """The first replica of the partition is down or not in sync, so it cannot lead again; the present leader goes
    on."""

    code = 80
    retriable = True
    about = "the preferred leader is down or not in sync"


class EligibleLeadersNotAvailableError(ClusterError):
    """No replica that could lead the partition is up."""

    code = 83
    retriable = True
    about = "no replica that could lead is up"


class KafkaStorageError(ClusterError):
    """The disk of the node refused the request, for example because it is full; the text has the disk's error. A
    producer sends the record again until its ``delivery_timeout_ms`` is over."""

    code = 56
    retriable = True
    about = "the node's disk refused"


class FencedEpochError(ClusterError):
    """The request has an older leader epoch than the partition."""

    code = 74
    retriable = True
    about = "fenced leader epoch"


class UnknownLeaderEpochError(ClusterError):
    """The request has a newer leader epoch than this node knows."""

    code = 75
    retriable = True
    about = "unknown leader epoch"


class UnsupportedVersionError(ClusterError):
    """The node or the cluster does not have the version of a request or a feature. All nodes must run a version of
    pyreplog that has it."""

    code = 35
    about = "version not supported"


class InvalidUpdateVersionError(ClusterError, ValueError):
    """A feature cannot have this level, or not every node that must know the level does. Nothing was changed."""

    code = 95
    about = "the level of the feature is refused"


class InconsistentClusterIdError(ClusterError):
    """The node belongs to another cluster: it has another cluster id. Check which folder it was opened with."""

    code = 104
    about = "another cluster's id"


class InvalidVoterKeyError(ClusterError, ValueError):
    """A change of the voters names a voter by an id and a directory id that do not belong together."""

    code = 125
    about = "not the key of a voter"


class DuplicateVoterError(ClusterError):
    """The node is a voter already. A voter with an empty folder must be removed before it is added again."""

    code = 126
    about = "already a voter"


class VoterNotFoundError(ClusterError):
    """No voter has this id and directory id."""

    code = 127
    about = "not a voter"


class IneligibleReplicaError(ClusterError):
    """A replica proposed for the in-sync set is fenced, unknown or of another incarnation."""

    code = 107
    about = "ineligible replica"


_BY_CODE: Final[dict[int, type[ClusterError]]] = {
    kind.code: kind
    for parent in (ClusterError, InvalidRequestError, OutOfOrderSequenceError, UnknownTopicError)
    for kind in parent.__subclasses__()
    if "code" in vars(kind)
}


def cluster_error(code: int, details: str = "") -> ClusterError:
    """Return the exception for Kafka's error number ``code``: a plain :class:`ClusterError` with the number if the
    number has no class."""
    kind = _BY_CODE.get(code)
    if kind is not None:
        return kind(details.removeprefix(f"{kind.about}: "))  # the details may be the text of such an error
    error = ClusterError(f"Kafka's error {code}{': ' + details if details else ''}")
    error.code = code
    return error


Wording = Callable[[str, str], str]
"""Chooses between two wordings of an advice: the one for Python, and the one for the command."""
_E = TypeVar("_E", bound=Exception)
_P = TypeVar("_P", bound=PyreplogError)


def for_python(python: str, command: str) -> str:
    """Return the :data:`Wording` ``python``."""
    return python


def worded(make: Callable[[Wording], _P]) -> _P:
    """Return the error that ``make`` makes, with its ``command_text``.

    ``make`` gets a :data:`Wording`, and is called once with each. Example:
    ``worded(lambda say: ConfigError(f"name a topic with {say('topic=', '--topic')}"))``.
    """
    error = make(for_python)
    twin = make(lambda python, command: command)
    error.command_text = twin.strerror if isinstance(twin, OSError) and twin.strerror else str(twin)
    return error


def copy_for_raise(error: _E) -> _E:
    """Return a copy of a stored ``error``, to be raised for one caller.

    Each raise of the stored error itself would make its traceback longer, and keep alive the
    objects in the callers' frames.
    """
    fresh = copy(error)
    fresh.__cause__ = error.__cause__
    return fresh


def excerpt(data: bytes | str) -> str:
    """Return foreign input, escaped and cut to 64 bytes, for an error text or a terminal."""
    text = repr(data[:EXCERPT_SIZE_MAX])
    return text if len(data) <= EXCERPT_SIZE_MAX else f"{text}... ({len(data)} in all)"


# Kernel statuses (src/_core/kernels/status.h), negative; the text is CorruptError's reason.
_STATUS_REASONS: Final[dict[int, str]] = {
    -1: "cut off: the structure needs more bytes than there are",
    -2: "varint longer than its type allows",
    -3: "length field contradicts the structure",
    -4: "unsupported magic",
    -5: "checksum mismatch (CRC-32C)",
    -6: "record count contradicts the records",
    -7: "offsets out of order",
    -8: "negative or absurd count",
    -9: "header key is null",
    -10: "header key is not UTF-8",
    -11: "unknown compression codec",
    -12: "trailing bytes after the last record",
    -13: "offset does not fit its segment",
    -14: "output buffer too small",
    -15: "leader epoch falls below that of an earlier batch",
}


def raise_for_status(status: int, position: int) -> NoReturn:
    """Raise the :class:`CorruptError` of a kernel's negative ``status``; ``position`` is a byte in the buffer it
    worked on."""
    reason = _STATUS_REASONS.get(status)
    if reason is None:
        raise InternalError(f"kernel status {status} at byte {position}: please report this")
    raise CorruptError(reason, position=position)

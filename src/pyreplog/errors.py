"""Every exception pyreplog raises, in one tree.

Each class keeps the facts a handler needs as attributes, and its text says what happened, where, and what to do
next. Classes that describe something Python already has a name for also inherit that builtin, so that
``except OSError`` or ``except ValueError`` keeps meaning what people expect.

Texts never echo more than 64 bytes of foreign input: see :func:`excerpt`.
"""

from __future__ import annotations

import errno
from copy import copy
from io import UnsupportedOperation
from typing import Any, ClassVar, Final, NoReturn, TypeVar

from pyreplog.interruptions import is_interruption

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
    "EligibleLeadersNotAvailableError",
    "FencedEpochError",
    "ForkedError",
    "IneligibleReplicaError",
    "InternalError",
    "InvalidProducerEpochError",
    "InvalidRequestError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTransactionStateError",
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
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "OutcomeUnknownError",
    "PreferredLeaderNotAvailableError",
    "ProtocolError",
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
    "UnsyncedError",
    "again",
    "cluster_error",
    "excerpt",
    "raise_for_status",
]

EXCERPT_SIZE_MAX: Final = 64
_SEGMENT_DIGITS: Final = 20


class PyreplogError(Exception):
    """Base of all errors raised by pyreplog. Carries no text of its own. Every one may be sent to another
    process."""

    def __reduce__(self) -> tuple[Any, ...]:
        """What copies it, or takes it to another process: not by way of ``__init__``, which makes the text."""
        parts: Any = super().__reduce__()
        return (_remade, parts[:2], *parts[2:])


def _remade(kind: type[PyreplogError], arguments: tuple[object, ...]) -> PyreplogError:
    error = kind.__new__(kind, *arguments)
    (OSError if issubclass(kind, OSError) else Exception).__init__(error, *arguments)
    return error


class CorruptError(PyreplogError, ValueError):
    """Bytes are wrong: checksum, magic, length, count or order.

    ``file`` is the path where known, ``position`` the byte in it (or in the buffer) where the bad structure starts.
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
    """The partition of a segment's file, which is named by 20 digits: the name of its folder."""
    folder, _, name = file.rpartition("/")
    digits, dot, _ = name.partition(".")
    return folder.rpartition("/")[2] or None if dot and len(digits) == _SEGMENT_DIGITS and digits.isdigit() else None


_RESTORE: Final = (
    "Restore this partition folder from another replica or a backup; where there is none, `replog repair` shows what"
    " can be saved"
)
_CUT_SHORT: Final = (
    "A copy ends like this if it is made file by file (cp, rsync, tar) while a program appends, and so does a log whose"
    " disk lost what it had synced. Copy a log in use with `replog backup SOURCE TARGET`; `replog repair COPY --to NEW`"
    " saves this copy as far as it reaches and says how many offsets the mark promised"
)


class CorruptLogError(CorruptError):
    """Rot below the durable mark: records that were acknowledged can no longer be read from this copy.

    ``start`` and ``end`` are the offsets (half-open) that are damaged; everything outside them is intact.
    ``offset`` is ``start``. ``ends``: the log ends at ``start``, before what its mark promises, so nothing behind
    the damage can be read.
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
    """The folder is a backup that was not finished, so it may lack records that its source had. ``folder`` is the
    backup, ``source`` the folder that it is made from ("" where that cannot be read)."""

    def __init__(self, folder: str, source: str) -> None:
        self.folder = folder
        self.source = source
        super().__init__(
            f"{folder} is a backup of {source or 'another folder'} that is not finished: run `replog backup"
            f" {source or 'SOURCE'} {folder}` until it ends; if the source is gone, `replog repair {folder} --to NEW`"
            " saves the segments that were copied whole"
        )


class BackupDivergedError(PyreplogError):
    """A backup holds records that its source has not: the source lost them, was put back from an older copy, or the
    backup was written to.

    Nothing was changed in the backup. ``source`` and ``backup`` are the partition's two folders, ``offset`` is
    where they part.
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
    """A compressed batch unpacks to more bytes than a reader takes. Nothing is known to be wrong with it.

    ``offset`` is its first offset, ``limit`` the bytes that the reader takes, ``setting`` the setting that raises
    the limit, ``partition`` the partition (``"orders-0"``), ``file`` the path and ``position`` the byte in it at
    which the batch begins, where known.
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
        """The same error with the partition, file and position of ``place``."""
        partition = place.partition or self.partition
        return BatchTooLargeError(
            self.offset, self.limit, partition=partition, file=place.file, position=place.position
        )


class UnexpectedAppendOffsetError(CorruptError):
    """A batch fetched from a leader does not follow the log. ``first_offset`` and ``last_offset`` are its own,
    ``end_offset`` is where the log ended before it. Nothing was appended."""

    def __init__(
        self, reason: str, *, first_offset: int, last_offset: int, end_offset: int, position: int | None = None
    ) -> None:
        super().__init__(
            f"{reason} (it has offsets {first_offset} to {last_offset}, and {end_offset} is next)", position=position
        )
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.end_offset = end_offset


class _ByErrno(type):
    """Makes of a :class:`StorageError` the kind that its errno says, as Python does of an OSError. Not by
    ``__new__``: one that is not OSError's own would have it take the arguments of every kind's ``__init__`` for an
    errno and a text."""

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        kind = _BY_ERRNO.get(arguments[0], cls) if cls is StorageError and arguments else cls
        return type.__call__(kind, *arguments, **named)

    @property
    def __signature__(cls) -> Any:
        """For ``help()``: what ``__init__`` takes, which it would not find behind this."""
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


class StorageError(PyreplogError, OSError, metaclass=_ByErrno):
    """The disk refused. Keeps ``errno`` and ``filename``. Where Python has a kind of OSError for the errno, so has
    this.

    After a failed sync the log is poisoned: nothing more is acknowledged until it is reopened and verified.
    """

    @classmethod
    def from_os_error(cls, error: OSError, doing: str, path: str) -> StorageError:
        """The same failure with what was being done, so that the text reads
        ``[Errno 28] No space left ... while appending``. What a signal handler raised (a TimeoutError, say) is none
        of the system's, and neither is one without a number: it is raised as it is."""
        if error.errno is None or is_interruption(error):
            raise error
        advice = _ADVICE.get(error.errno, "")
        return cls(error.errno, f"{error.strerror or error} while {doing}{advice and f' ({advice})'}", path)


class StorageNotFoundError(StorageError, FileNotFoundError):
    """No such file or folder; for ``open_log(path, "r")``: no log is there."""


class StoragePermissionError(StorageError, PermissionError):
    """The system does not allow it: see who owns the folder and its files, and their modes."""


class StorageExistsError(StorageError, FileExistsError):
    """Something of that name is there already."""


class StorageNotADirectoryError(StorageError, NotADirectoryError):
    """A file is where a folder should be."""


class StorageIsADirectoryError(StorageError, IsADirectoryError):
    """A folder is where a file should be."""


_BY_ERRNO: Final[dict[object, type[StorageError]]] = {
    errno.ENOENT: StorageNotFoundError,
    errno.EACCES: StoragePermissionError,
    errno.EPERM: StoragePermissionError,
    errno.EEXIST: StorageExistsError,
    errno.ENOTDIR: StorageNotADirectoryError,
    errno.EISDIR: StorageIsADirectoryError,
}


class LockedError(StorageError):
    """Another writer holds this folder. ``holder`` is the text that the writer left about itself: pid, host, start
    time."""

    def __init__(
        self,
        path: str,
        holder: str,
        name: str = "the folder",
        *,
        reading: str = "read it with mode='r'",
        waiting: str = "wait for it with lock_timeout=SECONDS",
        waited_s: float = 0,
    ) -> None:
        way_out = (
            "close the object that has it open (`with` does)"
            if holder.startswith("this process")
            else "stop that process"
        )
        waited = f", also after {waited_s:g} s" if waited_s else ""
        text = f"{name} is already open for writing by {holder}{waited}; {reading}, {waiting}, or {way_out}"
        super().__init__(errno.EAGAIN, text, path)
        self.holder = holder


class OffsetOutOfRangeError(PyreplogError, LookupError):
    """The offset asked for is not in the log. ``start`` and ``end`` bound what is there."""

    def __init__(self, asked: int, start: int, end: int, *, log: str = "the log") -> None:
        self.asked = asked
        self.start = start
        self.end = end
        super().__init__(f"offset {asked} is outside {log}, which holds offsets {start} up to (not including) {end}")


class DataLossError(PyreplogError, LookupError):
    """What was to be read is not there. Its three kinds say why. With ``failOnDataLoss`` false Spark reads what is
    left."""

    def __init__(
        self,
        what: str,
        advice: str = "Ask for what is there, or set the option failOnDataLoss to false to read what is left",
    ) -> None:
        super().__init__(f"{what}. {advice}")
        self.what = what


class RecordsDeletedError(DataLossError):
    """Removed by retention or by hand: the log begins later than what was asked for, or the partition is gone."""


class LogTruncatedError(DataLossError):
    """The log ends before what was asked for: never written, or cut off."""


class TopicRecreatedError(DataLossError):
    """The topic was deleted and another one made by that name: its offsets mean other records."""


class ConfigError(PyreplogError, ValueError):
    """A setting or an argument is unknown, of the wrong type, out of its limits, or contradicts what is stored."""


class ClosedError(PyreplogError):
    """The object was closed, or its log is poisoned by an earlier failure (which is then the cause)."""


class ReadOnlyError(ClosedError, UnsupportedOperation):
    """The log was opened with ``mode="r"``, and is not written to by this. As with a file that is open for
    reading."""


class ProtocolError(PyreplogError):
    """Abstract: a message breaks the protocol. See the two children."""


class LocalProtocolError(ProtocolError):
    """You tried to send something the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The other side sent something the protocol does not allow."""


class ForkedError(PyreplogError):
    """The object belongs to the parent process, of which this one is a fork: open what is needed again here."""


class InternalError(PyreplogError):
    """A bug of pyreplog. Please report it with the seed or the file named in the text."""


class NoThreadError(PyreplogError, RuntimeError):
    """The system lets no thread be started. What was asked for was not begun; what was acknowledged before is
    kept."""

    def __init__(self, purpose: str) -> None:
        advice = "raise the limit of processes and threads (`ulimit -u`, a container's pids limit), or end some"
        super().__init__(f"no thread can be started {purpose}: {advice}")


class ReentrantCallError(PyreplogError, RuntimeError):
    """A signal handler, a ``__del__`` or a weak reference's callback used a log or a cluster within another use of
    it by the same thread, which cannot go on before this one returns. Nothing was done: have another thread do it,
    or do it when the handler has returned."""


class BufferExhaustedError(PyreplogError, TimeoutError):
    """As much as ``buffer_memory`` allows waits for the disk already, and did so for ``max_block_ms``. Nothing was
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
    """Appended or not: nobody can say. ``tried`` says what was attempted.

    Reading the log from the last known offset settles it.
    """

    def __init__(self, tried: str, reason: str = "") -> None:
        self.tried = tried
        super().__init__(
            f"outcome unknown: {tried}{': ' + reason if reason else ''}. "
            "The records may or may not appear; read the log to find out before sending them again"
        )


class UnsyncedError(OutcomeUnknownError, StorageError, ClosedError):
    """The records were written, and the sync that was to make them durable failed, here or for somebody else: they
    may be there when the log is opened again, or not. ``errno`` and ``filename`` are the disk's. The log is
    poisoned, unless the sync could not even begin."""

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
        # Without the system's number there is none to begin with.
        return super().__str__() if self.errno is not None else str(self.strerror)


class SpoolRefusedError(PyreplogError):
    """A batch of the Spark sink was refused, and nothing of it was appended: the owner of the log would not take
    it, no owner came in time, or the query wrote a batch of this number before, with other rows (option
    ``appliedBatch``)."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}. Nothing of the batch was appended")


class SpoolDamagedError(PyreplogError):
    """What a task of the Spark sink left is damaged, after the log's owner had begun to append its batch: a part
    may be in the log.

    ``begun`` is the file that keeps the batch waiting, and with it later ones of its query."""

    def __init__(self, reason: str, begun: str) -> None:
        self.reason = reason
        self.begun = begun
        super().__init__(
            f"{reason}. A part of its batch may be in the log, and later ones of the query wait for it. Put the file"
            f" back from a copy; or remove {begun} and run the query again: it writes the batch anew, and the log knows"
            " what it has of it, where the tasks are the same"
        )


class ClusterError(PyreplogError):
    """An answer of a node or of the controller. ``code`` is Kafka's error number, ``retriable`` whether trying
    again can help."""

    code: int = -1
    retriable: ClassVar[bool] = False
    #: What a text without details says.
    about: ClassVar[str] = "the cluster answered"

    def __init__(self, details: str = "") -> None:
        super().__init__(f"{self.about}{': ' + details if details else ''}")


class UnknownServerError(ClusterError):
    """While the request was handled something happened that nobody had foreseen: a bug of pyreplog, please report
    it. The node goes on, and its log (the logger ``pyreplog.node``, at ERROR) has the traceback. For an append this
    is reported as :class:`OutcomeUnknownError` instead, unless it is known that nothing was appended."""

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
    """The topic that was meant is not there, although one of its name may be: it was deleted, and perhaps made
    anew. A node that has only just begun says so until it has heard of its topics."""

    code = 100
    about = "the topic was deleted, and perhaps made anew"


class TopicExistsError(ClusterError):
    """A topic of that name exists already. ``create_topic(..., exist_ok=True)`` takes one that has what is asked
    for."""

    code = 36
    about = "topic exists already"


class LeaderNotAvailableError(ClusterError):
    """Nobody leads the partition now: every replica that may is down."""

    code = 5
    retriable = True
    about = "no leader"


class NotLeaderError(ClusterError):
    """The node asked does not lead the partition (any more)."""

    code = 6
    retriable = True
    about = "not the leader of this partition"


class RequestTimedOutError(ClusterError, TimeoutError):
    """No answer in time: no node that could give one is up, or it takes longer. For an append this is reported as
    :class:`OutcomeUnknownError` instead."""

    code = 7
    retriable = True
    about = "request timed out"


class BrokerNotAvailableError(ClusterError):
    """No node can answer: all that could are down or fenced."""

    code = 8
    retriable = True
    about = "no node available"


class MessageTooLargeError(ClusterError, ValueError):
    """A batch larger than ``max.message.bytes``, or than a segment (``segment.bytes``)."""

    code = 10
    about = "message too large"


class InvalidTimestampError(ClusterError, ValueError):
    """A record's timestamp is outside ``message.timestamp.before.max.ms`` or ``message.timestamp.after.max.ms``, or
    beyond the year 9999, such as one that counts ns. Nothing was appended."""

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


class OutOfOrderSequenceError(ClusterError):
    """A batch's sequence does not follow the last one of its producer: a batch before it is missing."""

    code = 45
    about = "out of order sequence number"


class DuplicateSequenceError(OutOfOrderSequenceError):
    """A batch older than those remembered for its producer was sent again: it is in the log, and nobody knows
    where."""

    code = 46
    about = "duplicate sequence number"


class InvalidProducerEpochError(ClusterError):
    """The batch bears an older epoch than its producer's: a newer instance of the producer has taken over. Nothing
    was appended."""

    code = 47
    about = "invalid producer epoch"


class InvalidTransactionStateError(ClusterError):
    """The producer has a transaction open in this log, and the batch is not part of one."""

    code = 48
    about = "invalid transaction state"


class UnknownProducerIdError(ClusterError):
    """The log knows nothing of this producer, and the batch is not its first: begin anew at sequence 0 with a
    higher epoch, once all earlier batches are settled."""

    code = 59
    about = "unknown producer id"


class PreferredLeaderNotAvailableError(ClusterError):
    """The first replica of the partition is down or not in sync, so it cannot lead again; whoever leads goes on."""

    code = 80
    retriable = True
    about = "the preferred leader is down or not in sync"


class EligibleLeadersNotAvailableError(ClusterError):
    """No replica that could lead the partition is up."""

    code = 83
    retriable = True
    about = "no replica that could lead is up"


class KafkaStorageError(ClusterError):
    """The disk of the node that was asked refused, such as one that is full; the text has what it said. A record is
    sent again until its ``delivery_timeout_ms`` is over."""

    code = 56
    retriable = True
    about = "the node's disk refused"


class FencedEpochError(ClusterError):
    """The request carries an older leader epoch than the partition's."""

    code = 74
    retriable = True
    about = "fenced leader epoch"


class UnknownLeaderEpochError(ClusterError):
    """The request carries a newer leader epoch than this node has heard of."""

    code = 75
    retriable = True
    about = "unknown leader epoch"


class IneligibleReplicaError(ClusterError):
    """A replica proposed for the in-sync set is fenced, unknown or of another incarnation."""

    code = 107
    about = "ineligible replica"


_BY_CODE: Final[dict[int, type[ClusterError]]] = {
    kind.code: kind
    for parent in (ClusterError, OutOfOrderSequenceError, UnknownTopicError)
    for kind in parent.__subclasses__()
    if "code" in vars(kind)
}


def cluster_error(code: int, details: str = "") -> ClusterError:
    """The exception for Kafka's error number ``code``; a plain :class:`ClusterError` naming the number where it has
    no class."""
    kind = _BY_CODE.get(code)
    if kind is not None:
        return kind(details.removeprefix(f"{kind.about}: "))  # where it is the text of such an error already
    error = ClusterError(f"Kafka's error {code}{': ' + details if details else ''}")
    error.code = code
    return error


_E = TypeVar("_E", bound=Exception)


def copy_for_raise(error: _E) -> _E:
    """Return a copy of a stored ``error``, to be raised for one caller.

    Each raise of the stored error itself would make its traceback longer, and keep alive the
    objects in the callers' frames.
    """
    fresh = copy(error)
    fresh.__cause__ = error.__cause__
    return fresh


again = copy_for_raise


def excerpt(data: bytes | str) -> str:
    """Foreign input, escaped and cut to 64 bytes, fit for an error text or a terminal."""
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

"""Send dead letters back: append each to the topic that it is from, with its value, key and headers.

Each is sent back once. The place is kept beside the dead letters, so the command can be stopped and started again, and
goes on with those that came since. A record that was sent back has one header more, __dlq.replayed, which names its
dead letter. The dead letters stay where they are.

The log, or the cluster, is opened for writing, so no other program may have it open."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final, Protocol

from pyreplog.cli.dlq import DeadLetterPlace, add_letters, find_letters
from pyreplog.cli.options import EXIT_OK, Parser, add_permissions, add_progress, place, seconds
from pyreplog.cli.output import ProgressBar, counted, json_line, say
from pyreplog.cli.writing import is_cluster
from pyreplog.errors import ConfigError, InvalidRequestError, MessageTooLargeError
from pyreplog.readers import DEAD_LETTER_PREFIX, DeadLetter, read_letter, source_headers
from pyreplog.record import Record
from pyreplog.runtime import Cluster, Log, NamedConsumer, Producer, ReplayNotes, Target, open_log

__all__ = ["HELP", "NAME", "READER", "add_arguments", "run"]

NAME: Final = "dlq replay"
HELP: Final = "send dead letters back to the topic that they are from"
READER: Final = "replog.replay"
"""The name under which the place is kept."""
REPLAYED_HEADER: Final = "__dlq.replayed"


class Origin(Protocol):
    """The log or cluster that the dead letters are of."""

    def target(self, letter: DeadLetter) -> Target:
        """Return the partition that a letter goes back to."""
        ...

    def end(self, target: Target) -> int:
        """Return the end of its records."""
        ...

    def append(self, record: Record, target: Target) -> None:
        """Append a dead letter."""
        ...

    def records(self, target: Target, start: int) -> Iterator[Record]:
        """Yield its records, from offset ``start`` on, if it has so many."""
        ...


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog dlq replay``."""
    add_letters(parser)
    parser.add_argument(
        "--to", metavar="LOG", type=place, help="the log that the dead letters are of (default: by the folder's name)"
    )
    add_permissions(parser)
    parser.add_argument(
        "--lock-timeout",
        metavar="SECONDS",
        type=seconds,
        default=0.0,
        help="wait so long for another process to close the log (default: 0)",
    )
    parser.add_argument(
        "--skip-refused",
        action="store_true",
        help="pass letters that their topic refuses, such as one without a key in a compacted topic",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    add_progress(parser)


def run(arguments: argparse.Namespace) -> int:
    """Send them back, and say how many."""
    where = find_letters(arguments.path, arguments.topic)
    with ExitStack() as stack:
        if is_cluster(where.folder) and arguments.to is None:
            count = _replay_in_cluster(stack, where, arguments)
        else:
            count = _replay_to_log(stack, where, arguments)
    print(json_line({"replayed": count}) if arguments.json else f"{counted(count, 'dead letter')} sent back")
    return EXIT_OK


def _replay_to_log(stack: ExitStack, where: DeadLetterPlace, arguments: argparse.Namespace) -> int:
    path = arguments.to or where.source
    if not path:
        raise ConfigError(f"{where.folder} does not say which log its dead letters are of: name it with --to LOG")
    count = 0
    for topic in where.topics:
        log = stack.enter_context(
            open_log(
                path,
                topic=topic.removeprefix(DEAD_LETTER_PREFIX),
                create=False,
                permissions=arguments.permissions,
                lock_timeout=arguments.lock_timeout,
            )
        )
        dead = stack.enter_context(open_log(where.folder, "r", topic=topic))
        with dead.consumer(READER, lock_timeout=arguments.lock_timeout) as consumer:
            count += _replay(consumer, LogOrigin(log), arguments)
        log.close()
    return count


class LogOrigin:
    """A log, as a :class:`Origin`."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._target = Target(log.topic, log.topic_id, log.partition)

    def target(self, letter: DeadLetter) -> Target:
        """See :class:`Origin`."""
        return self._target

    def end(self, target: Target) -> int:
        """See :class:`Origin`."""
        return self._log.end_offset

    def append(self, record: Record, target: Target) -> None:
        """See :class:`Origin`."""
        self._log.append(record.value, key=record.key, headers=_headers(record))
        self._log.flush()

    def records(self, target: Target, start: int) -> Iterator[Record]:
        """See :class:`Origin`."""
        log = self._log
        start = max(start, log.start_offset)
        return iter(log.read(start)) if start < log.end_offset else iter(())


class ClusterOrigin:
    """A cluster, as a :class:`Origin`."""

    def __init__(self, cluster: Cluster, producer: Producer) -> None:
        self._cluster = cluster
        self._producer = producer
        self._ids: dict[str, str] = {}

    def target(self, letter: DeadLetter) -> Target:
        """See :class:`Origin`."""
        topic = letter.topic
        if topic not in self._ids:
            self._ids[topic] = self._cluster.admin.describe(topic).topic_id
        return Target(topic, self._ids[topic], letter.partition)

    def end(self, target: Target) -> int:
        """See :class:`Origin`."""
        with self._cluster.consumer((target.topic, target.partition)) as consumer:
            return consumer.end_offset(target.topic, target.partition)

    def append(self, record: Record, target: Target) -> None:
        """See :class:`Origin`."""
        self._producer.send(
            target.topic, record.value, key=record.key, headers=_headers(record), partition=target.partition
        ).result()

    def records(self, target: Target, start: int) -> Iterator[Record]:
        """See :class:`Origin`."""
        key = (target.topic, target.partition)
        with self._cluster.consumer(key) as consumer:
            start = max(start, consumer.start_offset(*key))
            if start < consumer.end_offset(*key):
                consumer.seek(*key, start)
                yield from consumer.until_end()


def _replay_in_cluster(stack: ExitStack, where: DeadLetterPlace, arguments: argparse.Namespace) -> int:
    cluster = stack.enter_context(
        Cluster(where.folder, permissions=arguments.permissions, lock_timeout=arguments.lock_timeout)
    )
    source = ClusterOrigin(cluster, stack.enter_context(cluster.producer()))
    with cluster.consumer(where.topics, name=READER, lock_timeout=arguments.lock_timeout) as consumer:
        return _replay(consumer, source, arguments)


def _replay(consumer: NamedConsumer, source: Origin, arguments: argparse.Namespace) -> int:
    """Send back the letters from the reader's place on, and return their number.

    Before each append, the attempt at the letter and the end of its target are noted durably. If a process ends
    between the append and the commit, the next one finds the note, and looks for the record from that end on.
    """
    notes = ReplayNotes(consumer)
    progress = ProgressBar(
        "sent back", total=sum(consumer.lag().values()), forced=arguments.progress, noun="dead letters"
    )
    count = 0
    for record in consumer.until_end():
        letter = read_letter(record.headers)
        if letter is None:
            say(f"replog dlq replay: {_name(record).decode()} is no dead letter, so it is not sent back")
        else:
            target = source.target(letter)
            there = notes.may_be_there(record) and _is_there(record, source.records(target, notes.start_of(target)))
            if not there:
                notes.begin(record, target, source.end(target) if notes.needs_end(target) else None)
                count += _append(source, record, target, skip=arguments.skip_refused)
        notes.end(record)
        progress.add(1)
    consumer.commit(sync=True)
    progress.close()
    return count


def _append(source: Origin, record: Record, target: Target, *, skip: bool) -> bool:
    """Append a letter. Return False if its topic refuses it and ``skip`` is set."""
    try:
        source.append(record, target)
    except (InvalidRequestError, MessageTooLargeError) as error:
        name = _name(record).decode()
        if not skip:
            say(f"replog dlq replay: {name} cannot be sent back; --skip-refused passes it")
            raise
        say(f"replog dlq replay: {name} is passed: {error}")
        return False
    return True


def _name(record: Record) -> bytes:
    return f"{record.topic}-{record.partition}@{record.offset}".encode()


def _headers(record: Record) -> list[tuple[str, bytes | None]]:
    kept = [(key, None if value is None else bytes(value)) for key, value in source_headers(record.headers)]  # type: ignore[call-overload]
    return [*kept, (REPLAYED_HEADER, _name(record))]


def _is_there(record: Record, sent: Iterator[Record]) -> bool:
    """Return whether the dead letter was sent back already."""
    name = _name(record)
    return any((REPLAYED_HEADER, name) == (key, value) for one in sent for key, value in one.headers)

"""Send dead letters back: append each to the topic that it is from, with its value, key and headers.

Each is sent back once. The place is kept beside the dead letters, so the command can be stopped and started again, and
goes on with those that came since. A record that was sent back has one header more, __dlq.replayed, which names its
dead letter. The dead letters stay where they are.

The log, or the cluster, is opened for writing, so no other program may have it open."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from pyreplog.cli.dlq import DeadLetterPlace, add_letters, find_letters
from pyreplog.cli.options import EXIT_OK, Parser, add_permissions, add_progress, place, seconds
from pyreplog.cli.output import ProgressBar, counted, json_line
from pyreplog.cli.writing import is_cluster
from pyreplog.config import INT32_MAX
from pyreplog.errors import ConfigError
from pyreplog.readers import DEAD_LETTER_PREFIX, DeadLetter, read_letter, source_headers
from pyreplog.record import Record
from pyreplog.runtime import Cluster, Handling, NamedConsumer, RetryPolicy, open_log

__all__ = ["HELP", "NAME", "READER", "add_arguments", "run"]

NAME: Final = "dlq replay"
HELP: Final = "send dead letters back to the topic that they are from"
READER: Final = "replog.replay"
"""The name under which the place is kept."""
REPLAYED_HEADER: Final = "__dlq.replayed"

Append = Callable[[Record, DeadLetter], None]
Records = Callable[[DeadLetter], Iterator[Record]]


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
    source = arguments.to or where.source
    if not source:
        raise ConfigError(f"{where.folder} does not say which log its dead letters are of: name it with --to LOG")
    count = 0
    for topic in where.topics:
        with _log(source, topic, arguments) as (append, records):
            dead = stack.enter_context(open_log(where.folder, "r", topic=topic))
            with dead.consumer(READER, lock_timeout=arguments.lock_timeout) as consumer:
                count += _replay(consumer, append, records, forced=arguments.progress)
    return count


@contextmanager
def _log(source: str, topic: str, arguments: argparse.Namespace) -> Iterator[tuple[Append, Records]]:
    """Open the source log, and return how to append to it and to read it."""
    with open_log(
        source,
        topic=topic.removeprefix(DEAD_LETTER_PREFIX),
        create=False,
        permissions=arguments.permissions,
        lock_timeout=arguments.lock_timeout,
    ) as log:

        def append(record: Record, letter: DeadLetter) -> None:
            log.append(record.value, key=record.key, headers=_headers(record))
            log.flush()

        yield append, lambda letter: log.read()


def _replay_in_cluster(stack: ExitStack, where: DeadLetterPlace, arguments: argparse.Namespace) -> int:
    cluster = stack.enter_context(
        Cluster(where.folder, permissions=arguments.permissions, lock_timeout=arguments.lock_timeout)
    )
    producer = stack.enter_context(cluster.producer())

    def append(record: Record, letter: DeadLetter) -> None:
        producer.send(
            letter.topic, record.value, key=record.key, headers=_headers(record), partition=letter.partition
        ).result()

    def records(letter: DeadLetter) -> Iterator[Record]:
        with cluster.consumer((letter.topic, letter.partition)) as consumer:
            yield from consumer.until_end()

    with cluster.consumer(where.topics, name=READER, lock_timeout=arguments.lock_timeout) as consumer:
        return _replay(consumer, append, records, forced=arguments.progress)


def _replay(consumer: NamedConsumer, append: Append, records: Records, *, forced: bool) -> int:
    """Send back the letters from the reader's place on, and return their number.

    Before each append, the attempt at the letter is noted durably. If a process ends between the append and the
    commit, the next one finds the note, and looks for the record in the source.
    """
    attempts = Handling(consumer, RetryPolicy(attempts=INT32_MAX), None)
    progress = ProgressBar("sent back", total=sum(consumer.lag().values()), forced=forced, noun="dead letters")
    count = 0
    for record in consumer.until_end():
        letter = read_letter(record.headers)
        if letter is not None:
            may_be_there = attempts.is_noted(record)
            attempts.begin(record)
            attempts.sync()
            if not (may_be_there and _is_there(record, records(letter))):
                append(record, letter)
                count += 1
        consumer.commit(record)
        progress.add(1)
    consumer.commit(sync=True)
    progress.close()
    return count


def _name(record: Record) -> bytes:
    return f"{record.topic}-{record.partition}@{record.offset}".encode()


def _headers(record: Record) -> list[tuple[str, bytes | None]]:
    kept = [(key, None if value is None else bytes(value)) for key, value in source_headers(record.headers)]  # type: ignore[call-overload]
    return [*kept, (REPLAYED_HEADER, _name(record))]


def _is_there(record: Record, sent: Iterator[Record]) -> bool:
    """Return whether the dead letter was sent back already."""
    name = _name(record)
    return any((REPLAYED_HEADER, name) == (key, value) for one in sent for key, value in one.headers)

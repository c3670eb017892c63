"""Dead letters as records: a record that no reader could process, with the six headers of KIP-1191."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pyreplog.record import Record

__all__ = ["DeadLetter", "letter_headers", "message_of", "read_letter", "source_headers"]

# On disk: never change.
_PREFIX: Final = "__dlq.errors."
_NAMES: Final = tuple(_PREFIX + name for name in ("topic", "partition", "offset", "group", "delivery.count", "message"))
MESSAGE_SIZE_MAX: Final = 4096
"""The most characters of an error in a header."""
_DIGITS_MAX: Final = 19


class DeadLetter(NamedTuple):
    """What the headers of a dead letter say."""

    topic: str
    partition: int
    offset: int
    group: str
    """The name of the reader or queue that gave the record up."""
    delivery_count: int
    message: str


def message_of(error: object) -> str:
    """Return the text of ``error`` for a header: its type and its message; of another object its text."""
    return f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)


def letter_headers(record: Record, group: str, message: str) -> list[tuple[str, object]]:
    """Return the headers of a dead letter of ``record``: its own, and then the six. Its ``delivery_count`` is one of
    them."""
    values = (record.topic, record.partition, record.offset, group, record.delivery_count, message[:MESSAGE_SIZE_MAX])
    return [
        *record.headers,
        *((name, str(value).encode("utf-8", "replace")) for name, value in zip(_NAMES, values, strict=True)),
    ]


def source_headers(headers: Sequence[tuple[str, object]]) -> list[tuple[str, object]]:
    """Return the headers of the record that a dead letter is of: those before the six."""
    kept = list(headers)
    size = len(_NAMES)
    if tuple(name for name, _ in kept[-size:]) == _NAMES:
        del kept[-size:]
    return kept


def read_letter(headers: Iterable[tuple[str, object]]) -> DeadLetter | None:
    """Return what the headers of a dead letter say; None if the record is no dead letter. The last header of a name
    counts, because a dead letter that was sent back may become one again."""
    found = dict(headers)
    texts: list[str] = []
    for name in _NAMES:
        value = found.get(name)
        try:
            texts.append(bytes(value).decode())  # type: ignore[call-overload]
        except (TypeError, UnicodeDecodeError):
            return None
    numbers = [_number(texts[place]) for place in (1, 2, 4)]
    if None in numbers:
        return None
    partition, offset, count = (number or 0 for number in numbers)
    return DeadLetter(texts[0], partition, offset, texts[3], count, texts[5])


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else None

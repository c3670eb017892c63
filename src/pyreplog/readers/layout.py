"""Names of the files that readers keep beside a log, and of the topics of their dead letters."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from pyreplog.errors import ConfigError, excerpt
from pyreplog.log import OFFSETS_PREFIX, QUEUE_PREFIX, TABLE_PREFIX, check_topic

__all__ = [
    "DEAD_LETTER_PREFIX",
    "OFFSETS_PREFIX",
    "QUEUE_PREFIX",
    "READER_NAME_SIZE_MAX",
    "REPLACEMENT_SUFFIX",
    "TABLE_PREFIX",
    "table_file_name",
    "check_reader_name",
    "dead_letter_topic",
    "offsets_file_name",
    "queue_file_name",
    "reader_name_of",
]

# On disk: never change.
DEAD_LETTER_PREFIX: Final = "dlq."
REPLACEMENT_SUFFIX: Final = "~"
"""Of a new file that has not replaced the old one yet. No name of a reader ends in it."""

READER_NAME_SIZE_MAX: Final = 200
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_CAPITAL: Final = re.compile(r"[A-Z]")
_ESCAPED: Final = re.compile(r"(?:[a-z0-9._-]|%[a-z]){1,232}")
_ESCAPED_SIZE_MAX: Final = 232
"""The most bytes of a name within a file's name. File systems allow 255 bytes; a prefix and a suffix such as
``.tmp`` need the rest."""
_DIGEST_SIZE: Final = 16


def check_reader_name(name: object, what: str = "a named reader") -> str:
    """Return ``name``. Raises TypeError unless it is text, and :class:`ConfigError` unless it has 1 to 200 of
    ``A-Z a-z 0-9 . _ -``. ``what`` is the owner of the name in errors."""
    if not isinstance(name, str):
        raise TypeError(f"the name of {what} must be text, not {type(name).__name__}")
    if _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"{excerpt(name)} is no name for {what}: use 1 to {READER_NAME_SIZE_MAX} of A-Z a-z 0-9 . _ -"
        )
    return name


def offsets_file_name(name: str) -> str:
    """Return the file name of the offsets of the named reader ``name``."""
    return OFFSETS_PREFIX + _escape(name)


def queue_file_name(name: str) -> str:
    """Return the file name of the journal of the queue ``name``."""
    return QUEUE_PREFIX + _escape(name)


def table_file_name(name: str) -> str:
    """Return the file name of the table ``name``; its store has ``.db`` behind it."""
    return TABLE_PREFIX + _escape(name)


def reader_name_of(file_name: str, prefix: str) -> str | None:
    """Return the name in a file name that begins with ``prefix``. None for any other file, and for a name that was
    too long for a file name: such a name is only in the file's header."""
    if not file_name.startswith(prefix):
        return None
    escaped = file_name[len(prefix) :]
    if _ESCAPED.fullmatch(escaped) is None:
        return None
    name = re.sub(r"%([a-z])", lambda found: found[1].upper(), escaped)
    return name if _NAME.fullmatch(name) else None


def _escape(name: str) -> str:
    """Return ``name`` for a file's name. A capital is ``%`` and its small letter, because two names that differ only
    in capitals are one file on some file systems. A longer result is replaced by a digest of the name."""
    escaped = _CAPITAL.sub(lambda found: f"%{found[0].lower()}", name)
    if len(escaped) <= _ESCAPED_SIZE_MAX:
        return escaped
    return f"%%{hashlib.blake2b(name.encode(), digest_size=_DIGEST_SIZE, person=b'replog.reader').hexdigest()}"


def dead_letter_topic(topic: str) -> str:
    """Return the topic of the dead letters of ``topic``. Raises :class:`InvalidTopicError` if its name is too
    long."""
    name = DEAD_LETTER_PREFIX + topic
    check_topic(name)
    return name

"""Names of the files beside a log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.errors import ConfigError, InvalidTopicError
from pyreplog.readers import (
    OFFSETS_PREFIX,
    QUEUE_PREFIX,
    check_reader_name,
    dead_letter_topic,
    offsets_file_name,
    queue_file_name,
    reader_name_of,
)

NAMES = st.from_regex(r"[A-Za-z0-9._-]{1,200}", fullmatch=True)


@given(NAMES)
def test_a_name_is_read_back_from_its_file(name: str) -> None:
    """Each name that fits gives a file name of at most 251 bytes, and comes back from it; a longer one is a digest,
    which is no name."""
    file = offsets_file_name(check_reader_name(name))
    assert len(file) <= 251
    assert reader_name_of(file, OFFSETS_PREFIX) == (None if "%%" in file else name)
    assert reader_name_of(file, QUEUE_PREFIX) is None
    assert queue_file_name(name).removeprefix(QUEUE_PREFIX) == file.removeprefix(OFFSETS_PREFIX)


@given(NAMES, NAMES)
def test_two_names_are_two_files_without_regard_to_capitals(one: str, two: str) -> None:
    """A file system that ignores capitals keeps the files of two names apart."""
    for other in (two, one.swapcase(), one.lower()):
        assert (offsets_file_name(one).lower() == offsets_file_name(other).lower()) == (one == other)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "é", "a" * 201, "a\0", "%a", "a\n"])
def test_other_names_are_refused(name: str) -> None:
    """A name must be 1 to 200 of the letters that a topic may have."""
    with pytest.raises(ConfigError, match="is no name for a named reader"):
        check_reader_name(name)


def test_a_name_is_text() -> None:
    """Bytes are refused as a TypeError."""
    with pytest.raises(TypeError, match="must be text, not bytes"):
        check_reader_name(b"a")


@pytest.mark.parametrize(
    "file", ["replog.offsets-", "replog.offsets-A", "replog.offsets-%", "replog.offsets-a.tmp/", "x"]
)
def test_other_files_have_no_name(file: str) -> None:
    """A file whose name no reader gives is no reader's."""
    assert reader_name_of(file, OFFSETS_PREFIX) is None


def test_the_topic_of_dead_letters() -> None:
    """It is the source's with a prefix, and must be a topic's name itself."""
    assert dead_letter_topic("orders") == "dlq.orders"
    with pytest.raises(InvalidTopicError):
        dead_letter_topic("a" * 249)

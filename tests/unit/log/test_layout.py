"""Names: which topics, folders and files are what."""

from __future__ import annotations

import pytest

from pyreplog.errors import InvalidTopicError
from pyreplog.log import check_topic, decode_uuid, directory_name, encode_uuid, parse_directory_name, random_uuid
from pyreplog.log.layout import join, name_of, parent_of, parse_base_offset, segment_name
from pyreplog.ports import Random


@pytest.mark.parametrize("name", ["a", "a.b", "A_b-c.0", "..a", "x" * 249, "__consumer_offsets"])
def test_topic_names(name: str) -> None:
    """What Kafka takes for a topic is one, and its folder reads back."""
    assert check_topic(name) == name
    parsed = parse_directory_name(directory_name(name, 7))
    assert parsed is not None
    assert (parsed.topic_partition.topic, parsed.topic_partition.partition, parsed.kind) == (name, 7, "")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", "a b", "a\n", "é", "x" * 250, "a\0b", 5, None, b"a"])
def test_bad_topic_names(name: str) -> None:
    """Everything else is refused, with at most 64 characters of it in the text."""
    with pytest.raises(InvalidTopicError) as caught:
        check_topic(name)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("name", "topic", "partition", "kind"),
    [
        ("t-0", "t", 0, ""),
        ("a-b.c-12", "a-b.c", 12, ""),
        ("t-0.0123456789abcdef0123456789abcdef-delete", "t", 0, "delete"),
        ("a.b-3.0123456789abcdef0123456789abcdef-stray", "a.b", 3, "stray"),
        ("t-1.0123456789abcdef0123456789abcdef-future", "t", 1, "future"),
    ],
)
def test_partition_folders(name: str, topic: str, partition: int, kind: str) -> None:
    """Live, deleted, stray and future folders, with dashes and dots in topics."""
    parsed = parse_directory_name(name)
    assert parsed is not None
    assert (parsed.topic_partition.topic, parsed.topic_partition.partition, parsed.kind) == (topic, partition, kind)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "t",
        "-0",
        "t-",
        "t-x",
        "t-1x",
        "t-01",
        "t-00",
        "lost+found",
        "t-99999999999",
        "..-0" * 80,
        "t-0-delete",
        "t 1-0",
        "t-\u0663",
    ],
)
def test_folders_that_are_none(name: str) -> None:
    """Other names are no partitions."""
    assert parse_directory_name(name) is None


def test_segment_names() -> None:
    """20 digits and a suffix, both ways."""
    assert segment_name(42, ".log") == "00000000000000000042.log"
    assert parse_base_offset("00000000000000000042.log") == 42
    assert parse_base_offset("00000000000000000042.index", ".index") == 42
    for name in (
        "x.log",
        ".log",
        "42.log",
        "1.log.deleted",
        "-1.log",
        "0" * 21 + ".log",
        "99999999999999999999.log",
        "replog.mark",
    ):
        assert parse_base_offset(name) is None


def test_paths() -> None:
    """Paths are joined and taken apart with slashes alone."""
    assert join("a/b", "c") == "a/b/c"
    assert join("", "c") == "c"
    assert (parent_of("a/b/"), parent_of("a"), parent_of("/a")) == ("a", ".", "/")
    assert (name_of("a/b/"), name_of("a")) == ("b", "a")


def test_ids() -> None:
    """22 characters of URL-safe base64 for 16 bytes, both ways; random ones never begin with a dash."""
    assert encode_uuid(bytes(15) + b"\1") == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert decode_uuid("AAAAAAAAAAAAAAAAAAAAAQ") == bytes(15) + b"\1"
    for text in ("", "AAAA", "A" * 21, "A" * 23, "é" * 22, "!" * 22):
        with pytest.raises(ValueError, match="not an id"):
            decode_uuid(text)
    random = Random(1)
    ids = [random_uuid(random) for _ in range(300)]
    assert len(set(ids)) == 300
    assert not [text for text in ids if text.startswith("-")]
    assert all(encode_uuid(decode_uuid(text)) == text for text in ids)

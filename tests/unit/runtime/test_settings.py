"""LogConfig and NodeConfig as people meet them: in ``help()``, at a prompt, and misspelt."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import pydoc

import pytest

from pyreplog import ConfigError, LogConfig, NodeConfig
from pyreplog.config import LogConfig as Known


@pytest.mark.parametrize("kind", [LogConfig, NodeConfig])
def test_help_shows_every_setting(kind: type[LogConfig] | type[NodeConfig]) -> None:
    """With its default and its type in the signature, and with its text."""
    parameters = inspect.signature(kind).parameters
    assert list(parameters) == [field.name for field in dataclasses.fields(kind)]
    for field in dataclasses.fields(kind):
        assert parameters[field.name].default == field.default
    assert kind(*(parameter.default for parameter in parameters.values())) == kind()
    assert kind(**{name: parameter.default for name, parameter in parameters.items()}) == kind()
    page = pydoc.render_doc(kind, renderer=getattr(pydoc, "plaintext"))  # noqa: B009  (typeshed leaves it out)
    assert f"class {kind.__name__}" in page
    assert "*values" not in page.partition("|")[0]


def test_each_setting_has_its_text() -> None:
    """That of the source, as on the reference page."""
    assert inspect.signature(LogConfig).parameters["segment_bytes"].annotation is int
    shown = pydoc.render_doc(LogConfig, renderer=pydoc.plaintext)  # type: ignore[attr-defined]
    assert "A segment is closed before it would grow beyond this." in shown
    assert LogConfig.__slots__["preallocate"].startswith("Reserve all of ``segment.bytes``")  # type: ignore[attr-defined]
    assert NodeConfig.__slots__["session_timeout_ms"].startswith("The controller fences")  # type: ignore[attr-defined]
    assert NodeConfig.__slots__["heartbeat_interval_ms"].startswith("The interval of a node's heartbeats")  # type: ignore[attr-defined]


def test_a_node_has_time_between_two_turns() -> None:
    """One that is to do something again at once does nothing else."""
    may_be_0 = {
        "replica_fetch_max_bytes",
        "replica_fetch_backoff_ms",
        "leader_imbalance_check_interval_ms",  # 0: never
        "leader_imbalance_per_broker_percentage",
        "leader_imbalance_grace_ms",
    }
    for field in dataclasses.fields(NodeConfig):
        if field.name in may_be_0:
            NodeConfig(**{field.name: 0})
            continue
        with pytest.raises(ConfigError, match=f"{field.name} is 0; it must be a whole number from 1"):
            NodeConfig(**{field.name: 0})
        NodeConfig(
            **{
                "session_timeout_ms": 2,
                "heartbeat_interval_ms": 1,
                field.name: 2 if field.name == "session_timeout_ms" else 1,
            }
        )


def test_a_node_that_is_up_is_heard_of_twice_before_it_is_fenced() -> None:
    """Settings by which it would be fenced between two heartbeats, and its leaderships be given away again and
    again, are refused, also where one of the two is a default."""
    for wrong in (
        {"session_timeout_ms": 500},
        {"heartbeat_interval_ms": 1501},
        {"session_timeout_ms": 99, "heartbeat_interval_ms": 50},
    ):
        with pytest.raises(
            ConfigError, match=r"heartbeat_interval_ms is \d+; .* half of session_timeout_ms, which is \d+"
        ):
            NodeConfig(**wrong)
    NodeConfig(session_timeout_ms=1000)
    NodeConfig(heartbeat_interval_ms=1500)
    NodeConfig(session_timeout_ms=100, heartbeat_interval_ms=50)


def test_a_repr_shows_what_was_changed() -> None:
    """And makes the same again."""
    assert repr(LogConfig()) == "LogConfig()"
    config = LogConfig(segment_bytes=1 << 20, durability="os")
    assert repr(config) == "LogConfig(durability='os', segment_bytes=1048576)"
    assert eval(repr(config), {"LogConfig": Known}) == config
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_misspelt_setting_is_told_the_right_one() -> None:
    """By keyword as by Kafka's key."""
    with pytest.raises(TypeError, match="LogConfig takes no 'segment_byte'; did you mean 'segment_bytes'"):
        LogConfig(segment_byte=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="takes no 'a', 'b', or not twice"):
        LogConfig(b=1, a=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'durability', or not twice"):
        LogConfig("os", durability="os")  # type: ignore[misc]


def test_all_of_a_config_by_kafkas_keys() -> None:
    """What differs, or everything; both read back."""
    config = LogConfig(preallocate=True)
    assert config.to_mapping() == {"preallocate": "true"}
    whole = config.to_mapping(whole=True)
    assert len(whole) == len(dataclasses.fields(LogConfig))
    assert LogConfig.from_mapping(whole) == LogConfig.from_mapping(config) == config


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (
            "compression.type",
            "lz5",
            "it must be one of producer, uncompressed, gzip, snappy, lz4, zstd; did you mean 'lz4'?",
        ),
        ("compression.type", "ztsd", "did you mean 'zstd'?"),
        ("compression.type", "brotli", "lz4, zstd$"),
        ("message.timestamp.type", "LogAppendtime", "did you mean 'LogAppendTime'?"),
        ("durability", "synch", "did you mean 'sync'?"),
    ],
)
def test_a_misspelt_value_is_told_the_right_one(key: str, value: str, words: str) -> None:
    """As a key is; where none is near, they are listed alone."""
    with pytest.raises(ConfigError, match=words.replace("?", r"\?")):
        LogConfig.from_mapping({key: value})


def test_kafkas_cleanup_policy_is_taken_as_kafka_takes_it() -> None:
    """In any order and with spaces; whoever misspells it is told."""
    assert LogConfig.from_mapping({"cleanup.policy": "delete"}) == LogConfig()
    both = LogConfig.from_mapping({"cleanup.policy": "delete, compact"})
    assert both.to_mapping() == {"cleanup.policy": "compact,delete"}
    assert both.compacts
    assert both.deletes
    assert not LogConfig(cleanup_policy="compact").deletes
    with pytest.raises(ConfigError, match=r"cleanup\.policy is 'compat'; it must be one of .*did you mean 'compact'"):
        LogConfig.from_mapping({"cleanup.policy": "compat"})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"min.cleanable.dirty.ratio": "half"}, "must be a number"),
        ({"min.cleanable.dirty.ratio": 1.5}, "from 0 to 1"),
        ({"min.cleanable.dirty.ratio": True}, "from 0 to 1"),
        ({"max.compaction.lag.ms": 0}, "from 1"),
        ({"min.compaction.lag.ms": 10, "max.compaction.lag.ms": 9}, "must be at most max.compaction.lag.ms, 9"),
        ({"compact.unkeyed": "keep"}, "must be one of refuse, drop"),
        ({"log.cleaner.dedupe.buffer.size": 8}, "from 48"),
    ],
)
def test_settings_of_compaction_are_checked(settings: dict[str, object], words: str) -> None:
    """Each names its key and its limits."""
    with pytest.raises(ConfigError, match=words):
        LogConfig.from_mapping(settings)

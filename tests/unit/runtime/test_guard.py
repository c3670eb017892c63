"""A client whose request meets a bug in a node hears of it; the node, and everybody whom it serves, goes on. On
real files."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

import pyreplog
from pyreplog.controller import describe
from pyreplog.log import Log
from tests.unit.runtime.active_controller import controller_driven

PATIENCE_S = 20.0
ODD_MS = 666


def test_others_are_served_while_one_client_breaks_a_node(
    cluster: pyreplog.Cluster,
    create: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Eight senders while a reader looks up a time that raises: it gets UnknownServerError each time, they get
    every acknowledgement."""
    topic = create()
    find = Log.find_timestamp

    def finding(self: Log, timestamp: int, end_offset: int) -> Any:
        if timestamp == ODD_MS:
            raise RuntimeError("a bug")
        return find(self, timestamp, end_offset)

    monkeypatch.setattr(Log, "find_timestamp", finding)
    lives = [node._node for node in cluster.nodes]
    acknowledged: list[int] = []

    def send(number: int) -> None:
        with cluster.producer() as producer:
            acks = [producer.send(topic, b"%d-%d" % (number, one)) for one in range(50)]
            acknowledged.extend(ack.result(PATIENCE_S).offset for ack in acks)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    with cluster.consumer(topic) as reader, caplog.at_level(logging.ERROR, "pyreplog"):
        for thread in threads:
            thread.start()
        for _ in range(5):
            with pytest.raises(pyreplog.UnknownServerError, match="unexpected error .*: events-0") as caught:
                reader.seek(topic, 0, timestamp=ODD_MS, timeout=PATIENCE_S)
            assert caught.value.code == -1
        for thread in threads:
            thread.join(PATIENCE_S)
        assert reader.seek(topic, 0, timestamp=0, timeout=PATIENCE_S) == 0
    assert sorted(acknowledged) == list(range(400))
    assert [node._node for node in cluster.nodes] == lives
    assert all(node.alive and node.ready and node.failure is None for node in cluster.nodes)
    assert [record.exc_text is not None and "RuntimeError: a bug" in record.exc_text for record in caplog.records] == [
        True
    ] * 5


def test_a_controller_survives_a_description(
    cluster: pyreplog.Cluster,
    create: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing was decided, so it does not begin anew, and nobody's leadership ends."""
    topic = create()
    leader_epoch = cluster.admin.describe(topic).partitions[0].leader_epoch
    before = controller_driven(cluster)

    def broken(*arguments: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, "pyreplog"):
        patch.setattr(describe, "describe_topics", broken)
        with pytest.raises(pyreplog.UnknownServerError):
            cluster.admin.describe(topic)
    assert controller_driven(cluster) is before
    assert cluster.admin.describe(topic).partitions[0].leader_epoch == leader_epoch
    assert [record.exc_info is not None for record in caplog.records] == [True]

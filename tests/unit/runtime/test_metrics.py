"""cluster.metrics() and metrics_text(): the names, the numbers, and the format."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pyreplog import Cluster, ConfigError, ReadOnlyError, aio
from pyreplog.runtime.metrics import METRICS

ROOT = Path(__file__).parents[3]
SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\.)*",?)+)\})? (-?\d+(?:\.\d+)?(?:e-?\d+)?)')


def parsed(text: str) -> dict[str, float]:
    """The samples of a text in Prometheus' format, which this checks: HELP and TYPE come before a metric's samples, and
    each metric's samples are together."""
    found: dict[str, float] = {}
    kinds: dict[str, str] = {}
    current = ""
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split(" ")[2]
            assert current not in kinds
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current
            kinds[name] = kind
            assert (kind == "counter") == name.endswith("_total")
        else:
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            assert match[1] == current
            key = line.rpartition(" ")[0]
            assert key not in found
            found[key] = float(match[3])
    return found


def test_the_page_names_each_metric() -> None:
    """The guide's table and the code have the same metrics, kinds, labels and meanings."""
    page = (ROOT / "docs/guide/metrics.md").read_text()
    rows = re.findall(r"^\| `(replog_\w+)` \| (gauge|counter) \| (.*?) ?\| (.+) \|$", page, re.MULTILINE)
    told = [(name, kind, tuple(re.findall(r"`(\w+)`", labels)), text) for name, kind, labels, text in rows]
    assert told == [(one.name, one.kind, one.labels, one.help) for one in METRICS]
    assert len(METRICS) >= 20


def test_numbers_of_a_working_cluster(cluster: Cluster, create: Callable[..., str]) -> None:
    """Bytes and requests go where the records went; every metric has a sample."""
    create("orders", 2)
    with cluster.producer() as producer:
        for number in range(100):
            producer.send("orders", b"x" * 100, partition=number % 2)
        producer.flush()
    with cluster.consumer("orders") as consumer:
        assert len(list(consumer.until_end())) == 100
    cluster._driver.wait_until(cluster._nodes.followers_know_ends, 10)
    found = cluster.metrics()
    assert {key.partition("{")[0] for key in found} == {one.name for one in METRICS}
    assert found["replog_topics"] == 1
    assert found["replog_partitions"] == 2
    assert found["replog_voters_up"] == found["replog_voters"] == found["replog_nodes"] == 3
    for name in ("under_replicated", "under_min_isr", "at_min_isr", "offline"):
        assert found[f"replog_{name}_partitions"] == 0
    ends = [found[f'replog_log_end_offset{{topic="orders",partition="{number}"}}'] for number in range(2)]
    assert ends == [50, 50]
    lags = {key: value for key, value in found.items() if key.startswith("replog_follower_lag_records")}
    assert len(lags) == 4
    assert set(lags.values()) == {0}
    sums = {
        path: sum(found[f'replog_node_bytes_total{{node="{node}",path="{path}"}}'] for node in (1, 2, 3))
        for path in ("from_producers", "to_consumers", "to_followers", "from_leaders")
    }
    assert sums["from_producers"] > 100 * 100
    assert sums["to_followers"] == sums["from_leaders"] == 2 * sums["from_producers"]
    assert sums["to_consumers"] >= sums["from_producers"]
    assert sum(value for key, value in found.items() if key.endswith(',request="produce"}')) >= 2
    assert found["replog_elections_total"] == 0
    assert sum(found[f'replog_node_leaders{{node="{node}"}}'] for node in (1, 2, 3)) == 2


def test_the_life_of_a_node(cluster: Cluster, create: Callable[..., str]) -> None:
    """Elections, shrinks, expansions and fencings are counted once each, whatever node is asked; counters of a node go
    on when it restarts."""
    create("orders", min_insync_replicas="1")
    with cluster.producer() as producer:
        producer.send("orders", b"first").result()
        leader = cluster.leader("orders")
        assert leader is not None
        number = leader.node_id
        before = cluster.metrics()
        leader.kill()
        producer.send("orders", b"second").result()
        found = cluster.metrics()
        key = f'replog_node_requests_total{{node="{number}",request="produce"}}'
        assert found[key] == before[key] == 1
        assert found[f'replog_node_up{{node="{number}"}}'] == 0
        assert found["replog_fenced_nodes"] == found["replog_fencings_total"] == found["replog_elections_total"] == 1
        assert found["replog_under_replicated_partitions"] == found["replog_isr_shrinks_total"] == 1
        assert found["replog_unclean_elections_total"] == 0
        assert found["replog_preferred_replica_imbalance"] == 1
        assert found["replog_voters_up"] == 2
        leader.restart()
        assert cluster._driver.wait_until(lambda: cluster._controller.counts.isr_expansions == 1, 10)
        found = cluster.metrics()
        assert found[key] == 1
        assert found["replog_fencings_total"] == found["replog_isr_shrinks_total"] == 1
        assert found["replog_under_replicated_partitions"] == 0


@pytest.mark.one_voter
def test_an_unclean_election_counts(cluster: Cluster, create: Callable[..., str]) -> None:
    """It is an election, and an unclean one."""
    create("orders", min_insync_replicas="1")
    last = cluster.leader("orders")
    assert last is not None
    others = [node for node in cluster.nodes[:3] if node is not last]
    for node in (*others, last):
        node.kill()
    others[0].restart()
    assert cluster.metrics()["replog_offline_partitions"] == 1
    cluster.admin.elect_leaders("orders", unclean=True)
    found = cluster.metrics()
    assert found["replog_unclean_elections_total"] == found["replog_elections_total"] == 1
    assert found["replog_offline_partitions"] == 0


def test_as_text(cluster: Cluster, create: Callable[..., str]) -> None:
    """The text has the same samples, in Prometheus' format; without partitions it has fewer."""
    create("orders")
    found = cluster.metrics()
    text = cluster.metrics_text()
    assert parsed(text).keys() == found.keys()
    few = parsed(cluster.metrics_text(partitions=False))
    assert few.keys() == cluster.metrics(partitions=False).keys()
    assert few.keys() == {key for key in found if "topic=" not in key}
    with pytest.raises(ConfigError, match="partitions"):
        cluster.metrics(partitions="no")  # type: ignore[arg-type]
    with Cluster(cluster.path, mode="r") as reader, pytest.raises(ReadOnlyError, match="replog top"):
        reader.metrics()


def test_prometheus_reads_the_text(cluster: Cluster, create: Callable[..., str]) -> None:
    """The parser of Prometheus' own client reads the same samples."""
    parser = pytest.importorskip("prometheus_client.parser")
    create("orders")
    text = cluster.metrics_text()
    families = list(parser.text_string_to_metric_families(text))
    assert {one.type for one in families} == {"gauge", "counter"}
    assert sum(len(one.samples) for one in families) == len(parsed(text))


def test_async_twin(tmp_path: Path) -> None:
    """The same from asyncio."""

    async def main() -> tuple[float, bool]:
        async with aio.Cluster(tmp_path / "data", nodes=1) as cluster:
            found = await cluster.metrics()
            return found["replog_nodes"], "replog_nodes 1\n" in await cluster.metrics_text()

    assert asyncio.run(main()) == (1, True)

"""The metrics of a cluster: numbers by name and labels, and the same as text for Prometheus."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from pyreplog.config import check_flag
from pyreplog.controller import MetadataImage, PartitionImage, effective_min_isr
from pyreplog.node import HostedPartition
from pyreplog.wire import NO_LEADER

if TYPE_CHECKING:
    from pyreplog.runtime.clients import Clients
    from pyreplog.runtime.cluster_node import ClusterNode
    from pyreplog.runtime.driver import Driver
    from pyreplog.runtime.node_group import NodeGroup

__all__ = ["METRICS", "Measured", "Metric"]

SLICE: Final = 1_000
"""Partitions whose replicas are looked at in one go, while the nodes pause."""


class Metric(NamedTuple):
    """One metric. ``kind``: a counter only grows, from 0 at the opening of the cluster."""

    name: str
    kind: Literal["gauge", "counter"]
    labels: tuple[str, ...]
    help: str


METRICS: Final = (
    Metric("replog_topics", "gauge", (), "Topics"),
    Metric("replog_partitions", "gauge", (), "Partitions of all topics"),
    Metric("replog_under_replicated_partitions", "gauge", (), "Partitions with a replica out of sync"),
    Metric("replog_under_min_isr_partitions", "gauge", (), "Partitions with fewer replicas in sync than the minimum"),
    Metric("replog_at_min_isr_partitions", "gauge", (), "Partitions with exactly the minimum of replicas in sync"),
    Metric("replog_offline_partitions", "gauge", (), "Partitions without a leader"),
    Metric("replog_preferred_replica_imbalance", "gauge", (), "Partitions not led by their first replica"),
    Metric("replog_elections_total", "counter", (), "Elections of leaders, the unclean ones too"),
    Metric("replog_unclean_elections_total", "counter", (), "Elections that may have lost records"),
    Metric("replog_isr_shrinks_total", "counter", (), "Changes that removed replicas from an in-sync set"),
    Metric("replog_isr_expansions_total", "counter", (), "Changes that added replicas to an in-sync set"),
    Metric("replog_nodes", "gauge", (), "Registered nodes that hold partitions"),
    Metric("replog_fenced_nodes", "gauge", (), "Registered nodes that must not serve: down, or not heard of"),
    Metric("replog_fencings_total", "counter", (), "How often a node was fenced"),
    Metric("replog_active_controllers", "gauge", (), "1 while a node is the active controller, else 0"),
    Metric("replog_controller_epoch", "gauge", (), "Epoch of the active controller; -1: there is none"),
    Metric("replog_voters", "gauge", (), "Nodes that vote for the controller"),
    Metric("replog_voters_up", "gauge", (), "Voters that run with whole metadata"),
    Metric("replog_metadata_offset", "gauge", (), "Offset of the newest committed record of the metadata"),
    Metric("replog_waiting_bytes", "gauge", (), "Bytes that producers of this process wait to have acknowledged"),
    Metric("replog_node_up", "gauge", ("node",), "1 if the node runs, else 0"),
    Metric("replog_node_metadata_lag_records", "gauge", ("node",), "Records of the metadata that the node lacks"),
    Metric("replog_node_replicas", "gauge", ("node",), "Replicas on the node"),
    Metric("replog_node_leaders", "gauge", ("node",), "Partitions that the node leads"),
    Metric("replog_node_requests_total", "counter", ("node", "request"), "Requests, by their kind"),
    Metric("replog_node_bytes_total", "counter", ("node", "path"), "Bytes of record batches, by their way"),
    Metric("replog_node_syncs_total", "counter", ("node",), "Finished syncs of partitions"),
    Metric("replog_node_sync_seconds_total", "counter", ("node",), "Time of all finished syncs together"),
    Metric("replog_node_sync_seconds_max", "gauge", ("node",), "Time of the slowest sync"),
    Metric("replog_node_running_syncs", "gauge", ("node",), "Syncs that have not ended"),
    Metric("replog_high_watermark", "gauge", ("topic", "partition"), "The leader's high watermark"),
    Metric("replog_log_end_offset", "gauge", ("topic", "partition"), "The leader's log end offset"),
    Metric(
        "replog_follower_lag_records",
        "gauge",
        ("topic", "partition", "node"),
        "Records that a follower lacks; -1: it has not fetched from this leader",
    ),
)
"""Every metric, in the order of the result."""

_Labels = tuple[object, ...]
_Found = dict[str, list[tuple[_Labels, float]]]


class Measured(ABC):
    """The part of a Cluster that measures it."""

    _nodes: NodeGroup
    _clients: Clients
    _driver: Driver

    @abstractmethod
    def _check(self) -> None:
        """Raise ClosedError if the cluster is closed."""

    def metrics(self, *, partitions: bool = True) -> Mapping[str, float]:
        """The cluster's metrics now: name with labels, such as ``replog_node_up{node="1"}``, to number. The guide's
        page "Metrics" names each.

        ``partitions`` False: without the metrics of single partitions, of which there may be very many. Counters
        begin at 0 when the cluster is opened. Nothing is asked of another process or of a disk.
        """
        self._check()
        check_flag("partitions", partitions)
        return dict(_samples(_collect(self._driver, self._nodes, self._clients, with_partitions=partitions)))

    def metrics_text(self, *, partitions: bool = True) -> str:
        """The metrics in Prometheus' text format (version 0.0.4), for an HTTP handler of the application.

        ``partitions``: see :meth:`metrics`.
        """
        self._check()
        check_flag("partitions", partitions)
        found = _collect(self._driver, self._nodes, self._clients, with_partitions=partitions)
        lines = []
        for metric in METRICS:
            samples = found.get(metric.name)
            if samples:
                lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
                lines += [f"{_key(metric, labels)} {_number(value)}" for labels, value in samples]
        return "\n".join([*lines, ""])


def _samples(found: _Found) -> Iterator[tuple[str, float]]:
    for metric in METRICS:
        for labels, value in found.get(metric.name, ()):
            yield _key(metric, labels), value


def _key(metric: Metric, labels: _Labels) -> str:
    if not labels:
        return metric.name
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(metric.labels, labels, strict=True))
    return f"{metric.name}{{{pairs}}}"


def _escaped(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return repr(value)


def _collect(driver: Driver, nodes: NodeGroup, clients: Clients, *, with_partitions: bool) -> _Found:
    """Return the samples of each metric. Very many partitions are looked at some at a time."""
    found: _Found = {metric.name: [] for metric in METRICS}
    image = driver.run_exclusively(lambda: _of_cluster(found, nodes))
    found["replog_waiting_bytes"].append(((), clients.waiting_bytes()))
    _of_partitions(found, image)
    if with_partitions:
        for node in list(nodes.nodes):
            _of_leaders(found, driver, node)
    return found


def _of_cluster(found: _Found, nodes: NodeGroup) -> MetadataImage:
    """Add the metrics of the controller and the nodes; return a copy of the newest metadata. REQUIRES that no machine
    runs."""
    controller = nodes.controller
    image, counts, active = controller.image, controller.counts, controller.active_id

    def add(name: str, value: float) -> None:
        found[name].append(((), value))

    add("replog_elections_total", counts.elections)
    add("replog_unclean_elections_total", counts.unclean_elections)
    add("replog_isr_shrinks_total", counts.isr_shrinks)
    add("replog_isr_expansions_total", counts.isr_expansions)
    add("replog_fencings_total", counts.fencings)
    add("replog_nodes", len(image.brokers))
    add("replog_fenced_nodes", sum(broker.fenced for broker in image.brokers.values()))
    add("replog_active_controllers", int(active is not None))
    add("replog_controller_epoch", controller.active_epoch)
    add("replog_voters", len(controller.newest_voters()))
    add("replog_voters_up", controller.voters_up())
    add("replog_metadata_offset", image.offset)
    for node in nodes.nodes:
        _of_node(found, node, image.offset)
    return image.copy()


def _of_node(found: _Found, node: ClusterNode, metadata_offset: int) -> None:
    number = node.node_id
    found["replog_node_up"].append(((number,), int(node.alive)))
    machine = node._node
    if machine is not None:
        found["replog_node_metadata_lag_records"].append(((number,), max(0, metadata_offset - machine.image.offset)))
        found["replog_node_replicas"].append(((number,), len(machine.hosted)))
        found["replog_node_running_syncs"].append(((number,), machine.running_syncs))
    if not node._is_broker:
        return
    traffic = node._traffic()
    for kind, count in (
        ("produce", traffic.produces),
        ("fetch", traffic.fetches),
        ("follower_fetch", traffic.follower_fetches),
        ("other", traffic.other_requests),
    ):
        found["replog_node_requests_total"].append(((number, kind), count))
    for path, size in (
        ("from_producers", traffic.bytes_from_producers),
        ("to_consumers", traffic.bytes_to_consumers),
        ("to_followers", traffic.bytes_to_followers),
        ("from_leaders", traffic.bytes_from_leaders),
    ):
        found["replog_node_bytes_total"].append(((number, path), size))
    found["replog_node_syncs_total"].append(((number,), traffic.syncs))
    found["replog_node_sync_seconds_total"].append(((number,), traffic.sync_ns / 1e9))
    found["replog_node_sync_seconds_max"].append(((number,), traffic.sync_max_ns / 1e9))


def _of_partitions(found: _Found, image: MetadataImage) -> None:
    """Add the numbers of partitions in each state, and of those that each node leads."""
    conditions: Sequence[tuple[str, Callable[[PartitionImage, int], bool]]] = (
        ("replog_partitions", lambda one, min_isr: True),
        ("replog_under_replicated_partitions", lambda one, min_isr: one.is_under_replicated),
        ("replog_under_min_isr_partitions", lambda one, min_isr: len(one.isr) < min_isr),
        ("replog_at_min_isr_partitions", lambda one, min_isr: len(one.isr) == min_isr),
        ("replog_offline_partitions", lambda one, min_isr: one.leader == NO_LEADER),
        ("replog_preferred_replica_imbalance", lambda one, min_isr: one.leader not in (NO_LEADER, one.replicas[0])),
    )
    counts = dict.fromkeys([name for name, _ in conditions], 0)
    leaders = dict.fromkeys(image.brokers, 0)
    for topic in image.topics.values():
        for one in topic.partitions.values():
            min_isr = effective_min_isr(topic, one)
            for name, holds in conditions:
                counts[name] += holds(one, min_isr)
            if one.leader in leaders:
                leaders[one.leader] += 1
    found["replog_topics"].append(((), len(image.topics)))
    for name, count in counts.items():
        found[name].append(((), count))
    for number, count in sorted(leaders.items()):
        found["replog_node_leaders"].append(((number,), count))


def _of_leaders(found: _Found, driver: Driver, node: ClusterNode) -> None:
    """Add the offsets of the partitions that ``node`` leads, and the lags of their followers."""
    machine = node._node
    if machine is None:
        return
    hosted = driver.run_exclusively(lambda: list(machine.hosted.values()))
    for first in range(0, len(hosted), SLICE):
        some = hosted[first : first + SLICE]
        driver.run_exclusively(lambda some=some: _of_replicas(found, some))  # type: ignore[misc]


def _of_replicas(found: _Found, hosted: Sequence[HostedPartition]) -> None:
    for one in hosted:
        replica = one.replica
        if not replica.is_leader:
            continue
        topic, partition = one.topic_partition
        log = replica.log
        end = log.end_offset
        found["replog_high_watermark"].append(((topic, partition), log.high_watermark))
        found["replog_log_end_offset"].append(((topic, partition), end))
        for follower in replica.followers:
            lag = -1 if follower.leo < 0 else max(0, end - follower.leo)
            found["replog_follower_lag_records"].append(((topic, partition, follower.broker_id), lag))

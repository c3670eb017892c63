"""The state of a cluster as lines for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from pyreplog.cli.output import counted, printable
from pyreplog.runtime import StoredNode, StoredPartition, StoredReplica, StoredState

__all__ = ["node_lines", "partition_lines", "replica_text", "summary_lines", "trouble_lines"]


def summary_lines(state: StoredState, elections: int | None = None) -> list[str]:
    """Return the lines about the cluster as a whole. ``elections``: since the first look; None: not counted."""
    brokers = [node for node in state.nodes if node.state != "voter"]
    online = sum(node.state == "online" for node in brokers)
    conditions = [
        counted(state.count("offline"), "partition") + " without a leader",
        f"{state.count('under_min_isr'):,} below min.insync.replicas",
        f"{state.count('under_replicated'):,} under-replicated",
        f"{state.count('whole'):,} whole",
    ]
    lines = [
        f"{printable(state.path)}  cluster id {state.cluster_id}",
        f"{online} of {counted(len(brokers), 'node')} online, {state.voters - state.voters_lost} of"
        f" {counted(state.voters, 'voter')} whole; metadata in epoch {state.metadata_epoch}, up to offset"
        f" {state.metadata_end}",
        ", ".join(conditions),
    ]
    if elections is not None:
        lines[1] += f"; {counted(elections, 'election')} since the start"
    return lines


def node_lines(state: StoredState) -> list[str]:
    """Return a table of the nodes."""
    has_racks = any(node.rack is not None for node in state.nodes)
    rows = [("node", "state", *(("rack",) if has_racks else ()), "votes", "leads", "in sync", "replicas", "metadata")]
    rows += [_node_row(node, state, has_racks=has_racks) for node in state.nodes]
    return _table(rows)


def _node_row(node: StoredNode, state: StoredState, *, has_racks: bool) -> tuple[str, ...]:
    rack = (printable(node.rack or "-"),) if has_racks else ()
    behind = "-" if node.metadata_end is None else str(node.metadata_end)
    if node.metadata_end is not None and node.metadata_end < state.metadata_end:
        behind += f" (-{state.metadata_end - node.metadata_end})"
    votes = "yes" if node.votes else "no"
    return (str(node.node), node.state, *rack, votes, str(node.leads), str(node.in_sync), str(node.replicas), behind)


def partition_lines(state: StoredState, partitions: Sequence[StoredPartition]) -> list[str]:
    """Return a table of partitions: a column for each node that holds partitions."""
    nodes = [node.node for node in state.nodes if node.state != "voter" or node.replicas]
    rows = [("partition", "leader", "epoch", *(f"node {number}" for number in nodes))]
    for one in partitions:
        copies = {copy.node: copy for copy in one.replicas}
        cells = [replica_text(copies[number]) if number in copies else "" for number in nodes]
        leader = "none" if one.leader < 0 else str(one.leader)
        rows.append((printable(one.name), leader, str(one.leader_epoch), *cells))
    return _table(rows)


def replica_text(copy: StoredReplica) -> str:
    """Return one cell: a sign, the high watermark and the log end offset, and how far it is behind.

    The sign: ``*`` leads, ``=`` in sync, ``-`` out of sync, ``!`` not there.
    """
    if copy.log_end is None:
        return f"! {copy.trouble.partition(':')[0]}"
    sign = "*" if copy.is_leader else "=" if copy.in_sync else "-"
    behind = f" behind {copy.lag:,}" if copy.lag and not copy.is_leader else ""
    down = " down" if copy.trouble else ""
    return f"{sign} {copy.high_watermark}/{copy.log_end}{behind}{down}"


def trouble_lines(one: StoredPartition) -> list[str]:
    """Return a line for a partition that is not whole, and one for each replica that it lacks."""
    in_sync = [str(copy.node) for copy in one.replicas if copy.in_sync]
    what = {
        "offline": "has no leader",
        "under_min_isr": f"is below min.insync.replicas, which is {one.min_isr}",
        "under_replicated": "is under-replicated",
    }[one.condition]
    there = f"in sync on node {' and '.join(in_sync)}" if in_sync else "in sync on no node"
    lines = [f"{one.name} {what}: {counted(len(one.replicas), 'replica')}, {there}"]
    for copy in one.replicas:
        if copy.in_sync and not copy.trouble:
            continue
        behind = "" if copy.lag is None else f"{counted(copy.lag, 'offset')} behind"
        lines.append(f"  node {copy.node}: {', '.join(part for part in (copy.trouble, behind) if part)}")
    return lines


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]

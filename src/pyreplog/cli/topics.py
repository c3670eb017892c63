"""List the topics in a folder, with their partitions and how many offsets each spans, up to the high watermark and
above it. Internal topics, whose names begin with two underscores, are listed only with --internal.

It also says which logs the folder holds, and why: one log, the nodes of one cluster, or several independent logs;
folders that cannot be read together (a copy); folders of other programs; and folders that may not be looked into.
The rule is on the page "Folders" of the guide.

Exit code 1: a topic or a folder cannot be read; the others are listed."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import asdict
from typing import Any, Final

from pyreplog.cli.cluster_text import trouble_lines
from pyreplog.cli.options import EXIT_FAILED, EXIT_OK, Parser, add_path, add_progress
from pyreplog.cli.output import counted, json_line, printable, say
from pyreplog.cli.reading import check_path, no_log, open_chosen, tell_distrust
from pyreplog.log import (
    Finder,
    Found,
    FoundLog,
    LogReader,
    find_logs,
    is_internal,
    refuse_unfinished,
    unfinished_backups,
)
from pyreplog.runtime import StoredCluster
from pyreplog.system import SystemDisk
from pyreplog.values import TopicPartition

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME: Final = "topics"
HELP: Final = "list the topics in a folder"
_KINDS: Final = (
    "topic",
    "cluster",
    "log",
    "conflict",
    "earlier_topic",
    "foreign",
    "hidden",
    "unfinished_backup",
    "unreadable",
)
"""A row is of the first kind that it has as a field: a topic's row may name its log too."""
_FAILING: Final = frozenset(("conflict", "hidden", "unfinished_backup", "unreadable"))
"""The rows with one of these name data that is not read."""


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog topics``."""
    add_path(parser)
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object per topic, then one for each other thing that was found; kind says which",
    )
    parser.add_argument(
        "--internal",
        action="store_true",
        help="list internal topics too, such as __consumer_offsets and __cluster_metadata of a broker's folder",
    )
    parser.add_argument(
        "--under-replicated",
        action="store_true",
        help="list instead the partitions of a cluster that lack replicas or a leader, and the replicas that they lack",
    )
    add_progress(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print one line per topic, then what else was found."""
    check_path(arguments.path)
    if arguments.under_replicated:
        return _list_under_replicated(arguments)
    disk = SystemDisk()
    readers: dict[TopicPartition, LogReader] = {}
    rows: list[dict[str, Any]] = []
    unlisted: set[str] = set()
    try:
        refuse_unfinished(disk, [arguments.path])
        found = find_logs(disk, arguments.path)
        unfinished = unfinished_backups(disk, found)
        lacking = {} if found.logs else FoundLog(disk, ".", (), homes=[found.path]).absent()
        if not found.logs and not found.unreadable and not lacking and not unfinished:
            raise no_log(arguments.path)
        held = [log for log in found.logs if log.has_partitions() and log.folder(found.path) not in unfinished]
        for log in held:
            refused = {conflict.topic for conflict in log.conflicts()}
            absent = log.absent()
            lacking.update(absent)
            readable = [key for key in log.partitions() if key.topic not in refused and key not in absent]
            chosen = [key for key in readable if arguments.internal or log.bare or not is_internal(key.topic)]
            unlisted |= {key.topic for key in readable if key not in chosen}
            readers = {}
            try:
                open_chosen(Finder.of(disk, found, log, partial=True), chosen, readers, forced=arguments.progress)
                tell_distrust(disk, readers.values())
                rows += _topics(readers, log.name if len(held) > 1 else None)
            finally:
                for reader in readers.values():
                    reader.close()
        rows += ({"unfinished_backup": folder, "why": str(error)} for folder, error in unfinished.items())
        rows += _surroundings(found, held, found.hidden(disk), unfinished, internal=arguments.internal)
    finally:
        disk.close()
    _show(rows, as_json=arguments.json)
    if unlisted and not any("topic" in row for row in rows):
        say(f"replog topics: {counted(len(unlisted), 'internal topic')} here; --internal lists them")
    for why in lacking.values():
        say(printable(f"replog topics: {why}; perhaps the disk of the missing node is not mounted"))
    failed = bool(lacking) or any(not row.keys().isdisjoint(_FAILING) for row in rows)
    return EXIT_FAILED if failed else EXIT_OK


def _list_under_replicated(arguments: argparse.Namespace) -> int:
    cluster = StoredCluster(arguments.path)
    try:
        state = cluster.look()
    finally:
        cluster.close()
    for one in state.worst_first:
        if one.condition == "whole" or (is_internal(one.topic) and not arguments.internal):
            continue
        if arguments.json:
            print(json_line({"kind": one.condition, **asdict(one)}))
        else:
            print("\n".join(map(printable, trouble_lines(one))))
    return EXIT_OK


def _topics(readers: dict[TopicPartition, LogReader], log: str | None) -> list[dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    named = {} if log is None else {"log": log}
    for key, reader in readers.items():
        row = topics.setdefault(
            key.topic, {**named, "topic": key.topic, "partitions": 0, "offsets": 0, "above_high_watermark": 0}
        )
        row["partitions"] += 1
        row["offsets"] += reader.end_offset - reader.start_offset
        row["above_high_watermark"] += reader.above_high_watermark
    return list(topics.values())


def _surroundings(
    found: Found, held: list[FoundLog], hidden: list[str], unfinished: Collection[str], *, internal: bool
) -> list[dict[str, Any]]:
    """The content of the folder besides the topics of one plain root."""
    rows: list[dict[str, Any]] = []
    for log in held:
        if len(held) > 1 or len(log.roots) > 1:
            kind = "cluster" if len(log.roots) > 1 else "log"
            row = {
                kind: log.name,
                "cluster_id": log.cluster_id,
                "nodes": log.node_ids,
                "folders": [one.path for one in log.roots],
            }
            rows.append({**row, "has_conflict": bool(log.conflicts())})
        conflicts = [one for one in log.conflicts() if internal or not is_internal(one.topic)]
        rows += ({"conflict": one.topic, "folders": one.folders, "why": one.why} for one in conflicts)
        rows += ({"earlier_topic": folder} for folder in log.stale)
    foreign = [*found.foreign, *(folder for log in found.logs for folder in log.foreign())]
    rows += (
        {"foreign": folder}
        for folder in foreign
        if not any(f"{log}/".startswith(f"{folder}/") for log in [*hidden, *unfinished])
    )
    rows += ({"hidden": folder} for folder in hidden)
    refused = {**found.unreadable, **{folder: error for log in found.logs for folder, error in log.unreadable.items()}}
    rows += ({"unreadable": folder, "why": error.strerror} for folder, error in refused.items())
    return rows


def _show(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    topics = [row for row in rows if "topic" in row]
    width = max((len(printable(row["topic"])) for row in topics), default=0)
    names = max((len(printable(row["log"])) for row in topics if "log" in row), default=0)
    count = sum(("log" in row and "topic" not in row) or "cluster" in row for row in rows)
    if count > 1 and not as_json:
        print(f"{count} independent logs")
    for row in rows:
        if as_json:
            print(json_line({"kind": _kind(row), **row}))
        elif "topic" in row:
            above = row["above_high_watermark"]
            more = f", {above:,} above the high watermark" if above else ""
            log = f"{printable(row['log']):{names}}  " if "log" in row else ""
            size = f"{counted(row['partitions'], 'partition')}, {counted(row['offsets'], 'offset')}"
            print(f"{log}{printable(row['topic']):{width}}  {size}{more}")
        elif text := _words(row):
            (print if row.keys().isdisjoint(_FAILING) else say)(printable(text))


def _kind(row: dict[str, Any]) -> str:
    """The kind of a row: its value is the first field of the row in JSON."""
    return next(kind for kind in _KINDS if kind in row)


def _words(row: dict[str, Any]) -> str:
    """A row that is no topic's, for people."""
    if "cluster" in row or "log" in row:
        name = row.get("cluster", row.get("log"))
        nodes = ", ".join(map(str, row["nodes"])) or "unknown"
        what = f"one cluster in {len(row['folders'])} folders" if "cluster" in row else "one log"
        if "cluster" in row and len(row["nodes"]) < len(row["folders"]) and row["has_conflict"]:
            what = f"{len(row['folders'])} folders of one cluster id that cannot all be read together"
        return (
            f"{name}: {what}, cluster id {row['cluster_id'] or 'unknown'}, node{'' if len(row['nodes']) == 1 else 's'}"
            f" {nodes}"
        )
    if "conflict" in row:
        return f"topic {row['conflict']} is not read: {row['why']} ({' and '.join(row['folders'])})"
    if "earlier_topic" in row:
        return f"{row['earlier_topic']}: of an earlier topic of that name, not read"
    if "foreign" in row:
        return f"{row['foreign']}: no log, left alone"
    if "unfinished_backup" in row:
        return f"unfinished backup, not read: {row['why']}"
    if "hidden" in row:
        return (
            f"{row['hidden']}: a log inside another log's folder, or more than two folders deep. Not read from here:"
            " name its folder"
        )
    return f"{row['unreadable']}: it may hold a log, and cannot be looked into: {row['why']}"

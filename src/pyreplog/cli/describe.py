"""Show the content of a folder: each partition's offsets, leader epochs, replicas, segments and sizes.

With several replicas in a cluster's folder, the numbers are those of the copy that is read: the one with the
highest leader epoch. With --html it writes a page about the cluster in the folder instead."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyreplog.cli.cluster_page import page_of
from pyreplog.cli.options import EXIT_OK, EXIT_USAGE, Parser, add_path, add_progress, add_selection
from pyreplog.cli.output import ProgressBar, amount, counted, json_line, printable, say
from pyreplog.cli.reading import check_path, readers
from pyreplog.log import LogReader
from pyreplog.runtime import StoredCluster

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME: Final = "describe"
HELP: Final = "show offsets, epochs, segments and sizes of each partition"


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog describe``."""
    add_path(parser)
    add_selection(parser)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--json", action="store_true", help="one JSON object per partition")
    chosen.add_argument(
        "--html",
        metavar="FILE",
        help="write one page about a cluster, which needs no other file: its nodes, and the state of each replica",
    )
    add_progress(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print one paragraph, or one JSON object, per partition; or write a page."""
    if arguments.html is not None:
        return _write_page(arguments)
    with readers(
        arguments.path, topic=arguments.topic, partition=arguments.partition, progress=arguments.progress
    ) as found:
        progress = ProgressBar("described", total=len(found), forced=arguments.progress, noun="partitions", beside=True)
        try:
            for reader in found.values():
                facts = facts_of(reader)
                if arguments.json:
                    print(json_line(facts))
                else:
                    print(printable(f"{facts['topic']}-{facts['partition']}"))
                    for line in _lines(facts):
                        print("  " + printable(line))
                progress.add(1)
        finally:
            progress.close()
    return EXIT_OK


def _write_page(arguments: argparse.Namespace) -> int:
    if arguments.topic is not None or arguments.partition is not None:
        say("replog describe: --html shows a whole cluster: leave out --topic and --partition")
        return EXIT_USAGE
    check_path(arguments.path)
    cluster = StoredCluster(arguments.path)
    try:
        state = cluster.look()
    finally:
        cluster.close()
    Path(arguments.html).write_text(page_of(state, datetime.now(UTC)), encoding="utf-8")
    size = f"{counted(len(state.partitions), 'partition')} on {counted(len(state.nodes), 'node')}"
    say(f"replog describe: {arguments.html} shows {size}")
    return EXIT_OK


def facts_of(reader: LogReader) -> dict[str, Any]:
    """One partition in names and numbers; sizes in bytes."""
    segments = [{"base_offset": base, "size": size} for base, size in reader.segments()]
    return {
        "topic": reader.topic,
        "partition": reader.partition,
        "topic_id": reader.topic_id or None,
        "start_offset": reader.start_offset,
        "high_watermark": reader.end_offset,
        "above_high_watermark": reader.above_high_watermark,
        "leader_epoch": reader.leader_epoch,
        "durability": reader.durability,
        "size": sum(size for _, size in reader.segments()),
        "directory": reader.directory,
        "replicas": reader.replicas,
        "segments": segments,
        "epochs": [{"epoch": entry.epoch, "start_offset": entry.start_offset} for entry in reader.epochs],
    }


def _lines(facts: dict[str, Any]) -> list[str]:
    start, end = facts["start_offset"], facts["high_watermark"]
    epochs = ", ".join(f"{entry['epoch']} from {entry['start_offset']}" for entry in facts["epochs"][-5:])
    earlier = f" ({len(facts['epochs']) - 5} earlier)" if len(facts["epochs"]) > 5 else ""
    above = facts["above_high_watermark"]
    more = f", and {counted(above, 'offset')} above it, up to {end + above}" if above else ""
    lines = [
        f"offsets     {start} up to {end} (the high watermark): {counted(end - start, 'offset')}{more}",
        f"epochs      {epochs or 'none'}{earlier}",
        f"durability  {facts['durability'] or 'not said: a folder of Kafka, or a bare copy'}",
        f"topic id    {facts['topic_id'] or 'not said'}",
        f"folder      {facts['directory']}",
    ]
    others = [replica for replica in facts["replicas"] if replica != facts["directory"]]
    if others:
        lines.append(f"replicas    {', '.join(others)}")
    lines.append(f"segments    {counted(len(facts['segments']), 'segment')}, {amount(facts['size'])}")
    lines += [f"            from {segment['base_offset']}: {amount(segment['size'])}" for segment in facts["segments"]]
    return lines

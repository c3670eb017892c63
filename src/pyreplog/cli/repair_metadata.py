"""``replog repair PATH --metadata``: the metadata of a cluster, made again from its nodes' folders."""

from __future__ import annotations

import argparse
import shlex

from pyreplog.cli.options import EXIT_DAMAGED, EXIT_OK, EXIT_USAGE
from pyreplog.cli.output import json_line, printable, say, tell
from pyreplog.cli.reading import check_path
from pyreplog.controller import UNKNOWN
from pyreplog.runtime import RebuiltMetadata, repair_metadata

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> int:
    """Show the metadata that the folders give; with ``--yes`` make it."""
    if arguments.to is not None:
        say("replog repair: --metadata makes the metadata in the cluster's folder; leave --to out")
        return EXIT_USAGE
    check_path(arguments.path)
    made = repair_metadata(arguments.path, write=arguments.yes, permissions=arguments.permissions)
    for line in _rows(made) if arguments.json else _lines(made):
        tell(printable(line))
    if not arguments.json:
        path = shlex.quote(arguments.path)
        tell(
            printable(
                f"node {made.node_id} is the only voter now; open the cluster as always"
                if arguments.yes
                else f"nothing was written; `replog repair {path} --metadata --yes` makes it"
            )
        )
    return EXIT_DAMAGED if made.losses else EXIT_OK


def _lines(made: RebuiltMetadata) -> list[str]:
    lines = []
    for key, (replicas, leader) in made.partitions.items():
        holders = ", ".join(map(str, replicas))
        if leader is None:
            lines.append(f"{key.topic}-{key.partition}: no copy survives")
        else:
            lines.append(f"{key.topic}-{key.partition}: on node {holders}; the copy of node {leader} leads")
    lines += [f"LOST {loss}" for loss in made.losses if loss.node_id is not None]
    return [*lines, "the folders do not tell:", *(f"  {fact}" for fact in UNKNOWN)]


def _rows(made: RebuiltMetadata) -> list[str]:
    rows: list[dict[str, object]] = [
        {"topic": key.topic, "partition": key.partition, "replicas": list(replicas), "leader": leader}
        for key, (replicas, leader) in made.partitions.items()
    ]
    rows += [
        {
            "topic": loss.topic,
            "partition": loss.partition,
            "lost_from": loss.start,
            "lost_up_to": loss.end if loss.end >= 0 else None,
        }
        for loss in made.losses
    ]
    return [json_line(row) for row in [*rows, {"voter": made.node_id, "unknown": list(UNKNOWN)}]]

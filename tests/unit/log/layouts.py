"""One table of folder layouts and what each of them is, for the finder, ``verify``, ``repair``, Spark's access and
the command."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyreplog
from pyreplog.log.identity import id_for_name
from tests.interop.golden.units import unit

CLUSTER = "cluster-4.3.1"


class Layout(NamedTuple):
    """``logs``: the independent logs that hold partitions. ``folders``: how many folders of partitions they have
    together. ``refusal``: a part of the error if one log is meant; "" if it can be read."""

    make: Callable[[Path], object]
    logs: list[str]
    folders: int
    refusal: str = ""


def log(path: Path, topic: str = "events", partition: int = 0) -> None:
    """A log of one record."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with pyreplog.open_log(path, topic=topic, partition=partition, durability="os") as writer:
        writer.append(b"x")


def kafka(name: str, path: Path, *, without: str = "") -> Path:
    """A broker's folder."""
    return Path(shutil.copytree(unit(name) / "data", path, ignore=shutil.ignore_patterns(without) if without else None))


def edit(path: Path, old: str, new: str) -> None:
    """Change the ids of a root."""
    file = path / "meta.properties"
    file.write_text(file.read_text().replace(old, new))


def workers(path: Path) -> None:
    """A folder for each worker."""
    for number in range(3):
        log(path / f"worker-{number}")


def cluster(path: Path) -> None:
    """A cluster of our own: each node has two partitions and its metadata log."""
    with pyreplog.Cluster(path, nodes=2) as nodes:
        nodes.admin.create_topic("events", partitions=2, replication_factor=2)


def split(path: Path) -> None:
    """A broker's folder over two of its ``log.dirs``."""
    whole = kafka("clean-4.3.1", path / "d1")
    (path / "d2").mkdir()
    shutil.copy(whole / "meta.properties", path / "d2")
    for name in ("plain-1", "txn-0", "__consumer_offsets-2"):
        (whole / name).rename(path / "d2" / name)


def old_split(path: Path) -> None:
    """The same of a broker from before topics had ids: no topic is in both folders."""
    whole = kafka("old-format-2.8.2", path / "d1")
    (path / "d2").mkdir()
    shutil.copy(whole / "meta.properties", path / "d2")
    (whole / "magic2-none-0").rename(path / "d2" / "magic2-none-0")


def nodes(path: Path, *, deep: bool = False, without: str = "") -> None:
    """Three nodes of a broker's cluster."""
    for number in (1, 2, 3):
        kafka(f"{CLUSTER}/n{number}", path / f"n{number}" / "data" if deep else path / f"n{number}", without=without)


def copied(path: Path) -> None:
    """A log and a copy of it."""
    log(path / "a")
    shutil.copytree(path / "a", path / "b")


def copied_node(path: Path) -> None:
    """A cluster, and a copy of one node."""
    nodes(path)
    shutil.copytree(path / "n1", path / "n1-saved")


def other_topic(path: Path) -> None:
    """Two nodes whose topics of one name are different topics."""
    kafka(f"{CLUSTER}/n2", path / "n2")
    kafka(f"{CLUSTER}/n3", path / "n3")
    (path / "n3" / "epochs-0" / "partition.metadata").write_text("version: 0\ntopic_id: AbCdEfGhIjKlMnOpQrStUw")


def other_topic_beside(path: Path) -> None:
    """Two partitions in one root, of different topics of one name, and one that does not say its topic."""
    bare_partitions(path)
    (path / "plain-1" / "partition.metadata").write_text("version: 0\ntopic_id: AbCdEfGhIjKlMnOpQrStUw")
    (path / "txn-0" / "partition.metadata").unlink()


def no_topic_id(path: Path) -> None:
    """Two nodes, of which one does not say which topic it holds."""
    kafka(f"{CLUSTER}/n2", path / "n2")
    kafka(f"{CLUSTER}/n3", path / "n3")
    (path / "n3" / "epochs-0" / "partition.metadata").unlink()


def one_id_missing(path: Path) -> None:
    """Two nodes, of which one does not say its cluster."""
    kafka(f"{CLUSTER}/n2", path / "n2")
    kafka(f"{CLUSTER}/n3", path / "n3")
    (path / "n3" / "meta.properties").unlink()


def controllers(path: Path) -> None:
    """Two brokers, and the folder of their controller, which has nothing but the cluster's metadata."""
    for number in (2, 3):
        kafka(f"{CLUSTER}/n{number}", path / f"n{number}")
    source = unit(f"{CLUSTER}/n1") / "data"
    (path / "c100").mkdir()
    shutil.copytree(source / "__cluster_metadata-0", path / "c100" / "__cluster_metadata-0")
    shutil.copy(source / "meta.properties", path / "c100")
    edit(path / "c100", "node.id=1", "node.id=100")


def two_controllers(path: Path) -> None:
    """Metadata of two clusters, without ids: Kafka's own topic has one id in every cluster."""
    for number, name in enumerate(("clean-4.3.1", "clean-3.9.1")):
        (path / f"c{number}").mkdir(parents=True)
        shutil.copytree(unit(name) / "data" / "__cluster_metadata-0", path / f"c{number}" / "__cluster_metadata-0")


def may_have_gaps(path: Path) -> None:
    """Folders of two old brokers without ids, which each got a topic id that is made of the topic's name when they
    were opened."""
    for name in ("a", "b"):
        (path / name).mkdir(parents=True)
        shutil.copytree(unit("old-format-2.8.2") / "data" / "magic2-none-0", path / name / "magic2-none-0")
        (path / name / "magic2-none-0" / "partition.metadata").write_text(
            f"version: 0\ntopic_id: {id_for_name('magic2-none')}"
        )


def bare(path: Path) -> None:
    """One partition's folder under another name."""
    shutil.copytree(unit("clean-4.3.1") / "data" / "plain-0", path)


def bare_partitions(path: Path) -> None:
    """Partitions' folders side by side, and nothing else."""
    for name in ("plain-0", "plain-1", "txn-0"):
        shutil.copytree(unit("clean-4.3.1") / "data" / name, path / name)


def foreign(path: Path) -> None:
    """One log among folders of other programs."""
    log(path)
    for name in (".Trash-1000/files", "photos-7/old", "report-2026", ".git", "@eaDir", "lost+found", "node-9"):
        (path / name).mkdir(parents=True)


def mixed_depths(path: Path) -> None:
    """Logs one and two folders deep."""
    log(path / "now")
    log(path / "archive" / "2025")


def two_clusters(path: Path) -> None:
    """The nodes of two clusters in one folder."""
    kafka(f"{CLUSTER}/n2", path / "a2")
    kafka(f"{CLUSTER}/n3", path / "a3")
    kafka("cluster-3.9.1/n2", path / "b2")


def nested(path: Path) -> None:
    """A log inside another log's folder: made by hand, because no log is made there."""
    log(path)
    log(path.parent / "other")
    shutil.copytree(path.parent / "other", path / "tenant-1")


def deep(path: Path) -> None:
    """A log four folders below the path."""
    log(path / "2025" / "11" / "26" / "events")


def deep_beside(path: Path) -> None:
    """The same, and a log that a reader of the path finds."""
    deep(path)
    log(path / "2025" / "now")


def tenants(path: Path) -> None:
    """A folder for each tenant: a log, and a cluster with its nodes on other disks."""
    log(path / "a")
    disks = [path.parent / "mnt" / f"{number}" for number in (1, 2)]
    with pyreplog.Cluster(path / "c", nodes=disks) as nodes:
        nodes.admin.create_topic("events", partitions=2, replication_factor=2)


def listed_twice(path: Path) -> None:
    """A cluster that lists folders beside it, under the same path."""
    log(path / "a")
    with pyreplog.Cluster(path / "c", nodes=[path / "b1", path / "d2"]) as nodes:
        nodes.admin.create_topic("events", partitions=1, replication_factor=2)


LAYOUTS = {
    "one log": Layout(log, ["."], 1),
    "a log among foreign folders": Layout(foreign, ["."], 1),
    "workers": Layout(workers, ["worker-0", "worker-1", "worker-2"], 3, "3 independent logs"),
    "logs at several depths": Layout(mixed_depths, ["archive/2025", "now"], 2, "2 independent logs"),
    "a cluster of ours": Layout(cluster, ["."], 6),
    "a log and a cluster on other disks": Layout(tenants, ["a", "c"], 7, "2 independent logs"),
    "a cluster beside its nodes": Layout(listed_twice, ["a", "c"], 5, "2 independent logs"),
    "a broker's nodes": Layout(nodes, ["."], 10),
    "a broker's nodes, n1/data": Layout(lambda path: nodes(path, deep=True), ["."], 10),
    "a broker's nodes without ids": Layout(lambda path: nodes(path, without="meta.properties"), ["."], 10),
    "two clusters": Layout(two_clusters, ["a2", "b2"], 9, "2 independent logs"),
    "two log.dirs": Layout(split, ["."], 13),
    "two log.dirs of an old broker": Layout(old_split, ["."], 14),
    "a copy": Layout(copied, ["."], 2, "twice"),
    "a copy of a node": Layout(copied_node, ["."], 14, "twice"),
    "two topics of one name": Layout(other_topic, ["."], 6, "topics"),
    "two topics of one name side by side": Layout(other_topic_beside, ["."], 3, "topics"),
    "a topic without id": Layout(no_topic_id, ["."], 6, "no file"),
    "a node without cluster id": Layout(one_id_missing, ["n2", "n3"], 6, "2 independent logs"),
    "brokers and a controller": Layout(controllers, ["."], 7),
    "controllers without ids": Layout(two_controllers, ["c0", "c1"], 2, "2 independent logs"),
    "topic ids made of the name": Layout(may_have_gaps, ["a", "b"], 2, "2 independent logs"),
    "a bare partition": Layout(bare, ["."], 1),
    "bare partitions": Layout(bare_partitions, ["."], 3),
}

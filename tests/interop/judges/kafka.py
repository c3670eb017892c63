"""Kafka's own software as a judge of folders: its dump tool, and a broker that serves them.

``KAFKA_JARS=<folder with a broker's jars>``; get them with
``mvn -f tests/interop/judges/pom.xml dependency:copy-dependencies -DoutputDirectory=<folder>``. Needs Java 17.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

JARS: Final = os.environ.get("KAFKA_JARS")
_DUMP_CLASSES: Final = ("kafka/tools/DumpLogSegments", "org/apache/kafka/tools/DumpLogSegments")
_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
_QUIET: Final = re.compile(
    r"(baseOffset: |\| |offset: |timestamp: |version: |producerId: |Log starting offset|Snapshot end"
    r" offset|SLF4J|log4j:WARN"
    r"|ERROR StatusLogger|WARN |.* is empty\.$|.* passed sanity check\.$)"
)
_INVALID: Final = re.compile(r"isvalid: false", re.IGNORECASE)


class Verdict(NamedTuple):
    """What the dump tool saw, and what it complained of."""

    files: int
    batches: int
    records: int
    complaints: list[str]


def _java(jars: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{jars}/*", *arguments]
    # Of options in the environment Java says, on every start, that it has them.
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
    return subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


def _dump_class(jars: str) -> str:
    for jar in sorted(Path(jars).glob("kafka*.jar")):
        names = set(zipfile.ZipFile(jar).namelist())
        for name in _DUMP_CLASSES:
            if f"{name}.class" in names:
                return name.replace("/", ".")
    raise FileNotFoundError(f"no DumpLogSegments in {jars}")


def dump(jars: str, folder: Path, *, gaps: bool = False) -> Verdict:
    """Every file under ``folder`` dumped with ``--deep-iteration``, every index also with both of the tool's index
    checks.

    ``gaps``: offsets may be left out within a log, as in compacted ones.
    """
    files = sorted(str(path) for path in folder.rglob("*") if path.suffix in _SUFFIXES and path.name[0].isdigit())
    indexes = [path for path in files if path.endswith(("index",)) and not path.endswith("txnindex")]
    tool = _dump_class(jars)
    batches = records = 0
    complaints: list[str] = []
    for options, chosen in (
        (["--deep-iteration"], files),
        (["--verify-index-only"], indexes),
        (["--index-sanity-check"], indexes),
    ):
        heading = ""
        for line in _java(jars, tool, *options, "--files", ",".join(chosen)).stdout.splitlines() if chosen else ():
            if heading and line.startswith("  "):
                # The tool of 4.3 begins every file at offset -1, and then misses what is between
                # that and the first.
                if not gaps and not line.startswith("  -1 is followed by "):
                    complaints.append(f"{heading}: {line.strip()}")
                continue
            heading = line if "Non-consecutive offsets" in line else ""
            batches += line.startswith("baseOffset: ")
            records += line.startswith("| ")
            if heading or line.startswith("Dumping ") or not line.strip():
                continue
            if not _QUIET.match(line) or _INVALID.search(line):
                complaints.append(f"{' '.join(options)}: {line}")
    return Verdict(len(files), batches, records, complaints)


def dump_metadata(jars: str, path: Path) -> list[str]:
    """The lines of the dump tool about one file of a metadata log, decoded. RuntimeError if the tool fails."""
    done = _java(jars, _dump_class(jars), "--cluster-metadata-decoder", "--files", str(path))
    lines = done.stdout.splitlines()
    if done.returncode or any("Exception" in line or _INVALID.search(line) for line in lines):
        raise RuntimeError(done.stdout[-4000:])
    return lines


class Broker:
    """A fresh single-node broker in ``folder``. Use it in ``with``.

    ``standalone``: its quorum has voters that can change, so its metadata folder begins with a snapshot.
    """

    def __init__(self, jars: str, folder: Path, *, standalone: bool = False, **settings: object) -> None:
        self._jars = jars
        self._folder = folder
        folder.mkdir()
        self.data = folder / "data"
        ports = [_free_port(), _free_port()]
        self.address = f"127.0.0.1:{ports[0]}"
        self.controller_port = ports[1]
        self._process: subprocess.Popen[bytes] | None = None
        listeners = f"PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://127.0.0.1:{ports[1]}"
        values: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.bootstrap.servers" if standalone else "controller.quorum.voters": (
                f"127.0.0.1:{ports[1]}" if standalone else f"1@127.0.0.1:{ports[1]}"
            ),
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.data,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "auto.create.topics.enable": "false",
            "log.retention.ms": -1,
            "log.retention.check.interval.ms": 3_600_000,
        }
        values.update({name.replace("_", "."): value for name, value in settings.items()})
        (folder / "broker.properties").write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        done = _java(
            jars,
            "kafka.tools.StorageTool",
            "format",
            "-t",
            "MkU3OEVBNTcwNTJENDM2Qg",
            "-c",
            str(folder / "broker.properties"),
            *(["--standalone"] if standalone else []),
        )
        if done.returncode:
            raise RuntimeError(done.stdout)

    def start(self) -> None:
        """Wait until it takes connections. RuntimeError, with its last words, when it does not."""
        with (self._folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "java",
                    "-Xmx512m",
                    "-XX:+UseSerialGC",
                    "-cp",
                    f"{self._jars}/*",
                    "kafka.Kafka",
                    str(self._folder / "broker.properties"),
                ],
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )
        for _ in _patience(120):
            if self._process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", int(self.address.rpartition(":")[2])), 1).close()
            except OSError:
                continue
            return
        raise RuntimeError((self._folder / "broker.log").read_text(errors="replace")[-4000:])

    def topics(self) -> str:
        """What Kafka's own command says of all topics, when the broker says anything."""
        for _ in _patience(60):
            done = _java(
                self._jars,
                "org.apache.kafka.tools.TopicCommand",
                "--bootstrap-server",
                self.address,
                "--describe",
            )
            if "Topic: " in done.stdout:
                return done.stdout
        raise RuntimeError(done.stdout[-2000:] + (self._folder / "broker.log").read_text(errors="replace")[-2000:])

    def create(self, topic: str, config: dict[str, str]) -> None:
        """Make a topic of one partition, when the broker is ready."""
        settings = [word for key, value in config.items() for word in ("--config", f"{key}={value}")]
        command = ("--bootstrap-server", self.address, "--create", "--if-not-exists", "--topic", topic)
        for _ in _patience(60):
            done = _java(self._jars, "org.apache.kafka.tools.TopicCommand", *command, *settings)
            if not done.returncode:
                return
        raise RuntimeError(done.stdout[-2000:])

    def stop(self) -> None:
        """In order."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class Served(NamedTuple):
    """A record as the broker gave it. ``kind``: 0 none, 1 create time, 2 log append time."""

    offset: int
    timestamp: int
    kind: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def serve(
    jars: str,
    work: Path,
    root: Path,
    topics: Sequence[str],
    *,
    clean: bool = False,
    isolations: Sequence[str] = ("read_uncommitted",),
) -> dict[tuple[str, str], list[Served]]:
    """What a broker serves of the one-partition ``topics`` in the log root ``root``, by topic and isolation.

    The broker makes the topics, is stopped, its folders are replaced by copies of ours (with its topic ids), and is
    started again: with the clean shutdown marker where ``clean``, so that it trusts the files, else it recovers.
    """
    from confluent_kafka import (  # noqa: PLC0415  (only where there is a broker)
        Consumer,
        KafkaError,
        KafkaException,
        TopicPartition,
    )
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # noqa: PLC0415

    found: dict[tuple[str, str], list[Served]] = {}
    with Broker(jars, work) as broker:
        broker.start()
        quiet: dict[str, str | int | float | bool] = {"bootstrap.servers": broker.address, "log_level": 0}
        config = {"retention.ms": "-1", "retention.bytes": "-1"}
        admin = AdminClient(quiet)  # kept: its answers die with it
        made = admin.create_topics([NewTopic(topic, 1, 1, config=config) for topic in topics])
        for future in made.values():
            future.result(30)
        for _ in _patience(30):
            if all((broker.data / f"{topic}-0" / "partition.metadata").exists() for topic in topics):
                break
        broker.stop()
        for topic in topics:
            target = broker.data / f"{topic}-0"
            identity = (target / "partition.metadata").read_text()
            shutil.rmtree(target)
            shutil.copytree(root / f"{topic}-0", target)
            (target / "partition.metadata").write_text(identity)
        for name in (
            "recovery-point-offset-checkpoint",
            "log-start-offset-checkpoint",
            "replication-offset-checkpoint",
        ):
            _merge_checkpoint(broker.data / name, root / name, topics)
        if not clean:
            (broker.data / ".kafka_cleanshutdown").unlink(missing_ok=True)
        broker.start()
        for isolation in isolations:
            settings = {
                "group.id": "judge",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": isolation,
            }
            consumer = Consumer({**quiet, **settings, "enable.partition.eof": True, "check.crcs": True})
            for topic in topics:
                records = found[topic, isolation] = []
                for _ in _patience(60):
                    try:
                        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=5)
                        break
                    except KafkaException:
                        continue  # it gets ready
                else:
                    raise RuntimeError(f"{topic}: the broker does not lead it within a minute")
                consumer.assign([TopicPartition(topic, 0, low)])
                while low < high:
                    message = consumer.poll(60)
                    if message is None:
                        raise RuntimeError(f"{topic}: nothing came for a minute")
                    problem: Any = message.error()
                    if problem is not None:
                        if problem.code() == KafkaError._PARTITION_EOF:
                            break
                        raise RuntimeError(str(problem))
                    kind, timestamp = message.timestamp()
                    if kind == 0:
                        timestamp = -1
                    headers: Any = message.headers() or []
                    offset: Any = message.offset()
                    records.append(Served(offset, timestamp, kind, message.key(), message.value(), list(headers)))
            consumer.close()
        broker.stop()
    return found


def _merge_checkpoint(theirs: Path, ours: Path, topics: Sequence[str]) -> None:
    rows = [line for line in _rows(theirs) if line.split()[0] not in topics]
    rows += [line for line in _rows(ours) if line.split()[0] in topics]
    theirs.write_text(f"0\n{len(rows)}\n" + "".join(f"{row}\n" for row in rows))


def _rows(path: Path) -> list[str]:
    return path.read_text().splitlines()[2:] if path.exists() else []


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _patience(seconds: float) -> Iterator[None]:
    """Now, and again every 0.2 s for as long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.2)

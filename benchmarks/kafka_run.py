"""One command for all figures of Spark, with Spark's own Kafka source as a peer: ``make bench-kafka``.

Has Maven resolve that source's jars and a broker's into ``build/`` (``SPARK_KAFKA_JARS`` and ``KAFKA_JARS`` name
folders that have them already), starts a broker of one node on this machine's loopback, runs the benchmarks of
Spark beside it, and stops it. Needs Java 17, the group ``bench``, and Maven unless both are named. Arguments go to
pytest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

ROOT: Final = Path(__file__).parents[1]
KAFKA: Final = "4.1.0"
PORT: Final = 19092
CONTROLLER_PORT: Final = 29093
START_S: Final = 120
FILES: Final = [f"benchmarks/bench_spark{part}.py" for part in ("", "_stream", "_sink")]

POM: Final = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>x</groupId><artifactId>x</artifactId><version>1</version><packaging>pom</packaging>
  <dependencyManagement><dependencies>{managed}</dependencies></dependencyManagement>
  <dependencies>{wanted}</dependencies>
</project>"""
DEPENDENCY: Final = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
TOKEN_PROVIDER: Final = "4.0.0"
"""Of the source's second jar, which is not published with each version."""


def resolve(folder: Path, wanted: list[tuple[str, str, str]], managed: list[tuple[str, str, str]]) -> Path:
    """Return the jars of ``wanted`` and their dependencies, in ``folder``; they are fetched once."""
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        texts = ("".join(DEPENDENCY.format(*one) for one in ones) for ones in (wanted, managed))
        (part / "pom.xml").write_text(POM.format(**dict(zip(("wanted", "managed"), texts, strict=True))))
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={part}"]
        subprocess.run(["mvn", "-q", "-f", str(part / "pom.xml"), *copy], check=True)
        part.rename(folder)
    return folder


def named(variable: str) -> Path | None:
    """The folder of jars that an environment variable names, if it does."""
    folder = os.environ.get(variable)
    if folder and not any(Path(folder).glob("*.jar")):
        raise SystemExit(f"{variable}={folder} holds no jars")
    return Path(folder).absolute() if folder else None


@contextmanager
def broker(jars: Path) -> Iterator[str]:
    """A broker with empty logs, and its address."""
    from confluent_kafka import KafkaException  # noqa: PLC0415  (only here)
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415  (as above)

    java = ["java", "-cp", f"{jars}/*"]
    with tempfile.TemporaryDirectory(prefix="kafka-") as folder:
        settings = Path(folder) / "settings"
        settings.write_text(
            "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
            f"controller.quorum.voters=1@127.0.0.1:{CONTROLLER_PORT}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{PORT},CONTROLLER://127.0.0.1:{CONTROLLER_PORT}\n"
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{PORT}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            f"log.dirs={folder}/logs\noffsets.topic.replication.factor=1\n"
        )
        tool = [*java, "kafka.tools.StorageTool"]
        number = subprocess.run([*tool, "random-uuid"], check=True, capture_output=True, text=True).stdout.split()[-1]
        subprocess.run([*tool, "format", "-t", number, "-c", str(settings)], check=True, stdout=subprocess.DEVNULL)
        with open(Path(folder) / "out", "wb") as out:
            process = subprocess.Popen([*java, "-Xmx1g", "kafka.Kafka", str(settings)], stdout=out, stderr=out)
        try:
            address = f"127.0.0.1:{PORT}"
            deadline = time.monotonic() + START_S
            while True:
                try:
                    AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=2)
                    break
                except KafkaException:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError(
                            f"no broker at {address}: {(Path(folder) / 'out').read_text()[-2000:]}"
                        ) from None
            yield address
        finally:
            process.terminate()
            process.wait()


def main() -> int:
    """The result of pytest."""
    spark = ".".join([*pyspark.__version__.split(".")[:2], "0"])
    source = [("org.apache.spark", "spark-sql-kafka-0-10_2.13", spark)]
    token = [("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", TOKEN_PROVIDER)]
    jars = named("SPARK_KAFKA_JARS") or resolve(ROOT / "build" / f"kafka-source-{spark}", source, token)
    logging = [("org.apache.logging.log4j", name, "2.24.3") for name in ("log4j-slf4j2-impl", "log4j-core")]
    node = named("KAFKA_JARS") or resolve(
        ROOT / "build" / f"kafka-{KAFKA}", [("org.apache.kafka", "kafka_2.13", KAFKA), *logging], []
    )
    with broker(node) as address:
        command = [
            sys.executable,
            "-m",
            "pytest",
            *FILES,
            "--benchmark-enable",
            "--benchmark-only",
            "--benchmark-quiet",
        ]
        command += ["--benchmark-disable-gc", "-p", "no:xdist", "-p", "no:cacheprovider", "-q", *sys.argv[1:]]
        environment = os.environ | {"SPARK_KAFKA_JARS": str(jars), "SPARK_KAFKA_SERVERS": address}
        return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

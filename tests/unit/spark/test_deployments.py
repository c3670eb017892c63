"""Other ways to run Spark, each in a process of its own: executors that are processes of their own beside a cluster
whose leader dies, Spark Connect, and a broken package beside ours."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pyreplog

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(600)]

LOCAL_CLUSTER = """
import os, sys, threading
from pyspark.sql import SparkSession
import pyreplog
from pyreplog.spark import ensure_java_home, lag

os.environ["PYSPARK_PYTHON"] = sys.executable
ensure_java_home()
spark = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
with pyreplog.Cluster("cluster", nodes=3) as cluster:
    cluster.admin.create_topic("t", partitions=4, replication_factor=3, config={"segment.bytes": "100000"})
    acknowledged = []
    def produce(count):
        with cluster.producer() as producer:
            acks = [producer.send("t", b"%d" % number, partition=number % 4) for number in range(count)]
            acknowledged.extend((ack.result(timeout=60).partition, ack.result().offset) for ack in acks)
    produce(1000)
    schema = "partition int, offset long"
    stream = spark.readStream.format("replog").schema(schema).option("startingOffsets", "earliest").load("cluster")
    query = stream.writeStream.format("memory").queryName("seen").trigger(processingTime="0 seconds").start()
    for _ in range(4):
        planned = spark.read.format("replog").schema(schema).option("maxRecordsPerPartition", 200).load("cluster")
        count = len(acknowledged)
        assert planned.count() >= count
        victim = cluster.leader("t", 0)
        busy = threading.Thread(target=produce, args=(500,))
        busy.start()
        victim.kill()
        assert planned.count() >= count
        rows = [(row.partition, row.offset) for row in planned.collect()]
        assert len(rows) == len(set(rows)) == planned.count()
        busy.join()
        victim.restart()
    produce(4)
    query.processAllAvailable()
    query.processAllAvailable()
    seen = [(row.partition, row.offset) for row in spark.sql("select * from seen").collect()]
    assert len(seen) == len(set(seen)), (len(seen), len(set(seen)))
    assert set(seen) >= set(acknowledged), sorted(set(acknowledged) - set(seen))[:5]
    query.stop()
    hosts = spark.sparkContext.parallelize(range(8), 8).map(lambda _: (os.getppid(), os.getcwd())).distinct().collect()
    assert os.getcwd() not in [folder for _, folder in hosts]
print("fine", len(seen))
spark.stop()
"""

CONNECT = """
import os, sys, warnings
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyreplog.spark import ensure_java_home, lag, map_arrow, register
ensure_java_home()
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").getOrCreate()
import pyspark.sql.connect.session
assert isinstance(spark, pyspark.sql.connect.session.SparkSession)
path = sys.argv[1]
assert spark.read.format("replog").load(path).count() == 100
register(spark)
stream = spark.readStream.format("replog").option("startingOffsets", "earliest").load(path)
query = stream.writeStream.format("parquet").option("checkpointLocation", path + "/../cp")
query = query.option("path", path + "/../out").trigger(availableNow=True).start()
assert query.awaitTermination(200)
assert spark.read.parquet(path + "/../out").count() == 100
assert lag(query).total == 0
import pyarrow as pa
def rows(batches):
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})
assert map_arrow(spark, rows, "rows long", columns=["offset"], path=path).collect()[0].rows == 100
# Sources run in a folder that goes with the session: a log made there would go with it.
for use in (
    lambda: spark.range(3).selectExpr("string(id) AS value").write.format("replog").mode("append").save("made"),
    lambda: spark.read.format("replog").load("events").count(),
):
    try:
        use()
    except Exception as error:
        assert "is relative, and Spark Connect" in str(error), error
    else:
        raise AssertionError("a relative path was taken")
from pyreplog.spark import local_session
try:
    local_session()
except Exception as error:
    assert type(error).__name__ == "ConfigError" and "Spark Connect runs already" in str(error), error
else:
    raise AssertionError("two sessions")
print("fine")
spark.stop()
"""

BROKEN = """
import sys
from pyreplog.spark import local_session, register
SOCKETS = "spark.python.unix.domain.socket.enabled"
with local_session("broken", cores=1, config={SOCKETS: "false"}) as spark:
    assert spark.sparkContext.getConf().get(SOCKETS) == "false"  # what is given comes before the default
    try:
        spark.read.format("replog").load(sys.argv[1]).count()
    except Exception as error:
        assert "DATA_SOURCE_NOT_FOUND" in str(error) or "replog" in str(error), error
        print("not found")
    register(spark)
    assert spark.read.format("replog").load(sys.argv[1]).count() == 100
print("fine")
"""


def run(program: str, folder: Path, *arguments: str, path: Path | None = None) -> str:
    """What ``program`` prints, run in ``folder``."""
    places = [str(place) for place in (path, Path(pyreplog.__file__).parents[1], os.environ.get("PYTHONPATH")) if place]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def filled(folder: Path) -> Path:
    """A log of 100 records."""
    with pyreplog.open_log(folder / "events", durability="os") as log:
        log.append_many([b"x"] * 100)
    return folder / "events"


def test_executors_in_other_processes(tmp_path: Path) -> None:
    """On local-cluster, by a relative path, beside a cluster that appends, rolls and loses its leader: plans are
    read whole and only once, and a stream sees every acknowledged record once."""
    assert "fine" in run(LOCAL_CLUSTER, tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="Spark Connect needs grpcio and its companions")
def test_connect(tmp_path: Path) -> None:
    """With Spark Connect: found without registration, registered by hand, streaming with its lag, and map_arrow; no
    relative paths."""
    assert "fine" in run(CONNECT, tmp_path, str(filled(tmp_path)))


def test_a_broken_neighbour(tmp_path: Path) -> None:
    """Where another package called pyspark_* cannot be imported, Spark finds no Python source by itself;
    registering by hand helps."""
    (tmp_path / "packages" / "pyspark_aaa_broken").mkdir(parents=True)
    (tmp_path / "packages" / "pyspark_aaa_broken" / "__init__.py").write_text("raise RuntimeError('broken')")
    assert "fine" in run(BROKEN, tmp_path, str(filled(tmp_path)), path=tmp_path / "packages")

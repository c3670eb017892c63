"""Spark's own Kafka source as a peer. It takes part if both variables are set:

``SPARK_KAFKA_JARS``: a folder with its jars, of exactly this Spark's version; ``SPARK_KAFKA_SERVERS``: a broker on
this machine, such as ``127.0.0.1:19092``, whose topics ``bench-spark*`` are deleted and created again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

import pyreplog

JARS: Final = os.environ.get("SPARK_KAFKA_JARS", "")
SERVERS: Final = os.environ.get("SPARK_KAFKA_SERVERS", "") if JARS else ""

TUNED: Final = {"kafka.max.poll.records": "50000", "kafka.fetch.max.wait.ms": "10"}
"""By default it fetches 500 records at a time, asking for two offsets each time, and waits half a second at the end
of a partition."""


def settings() -> dict[str, str]:
    """For the session, so that it finds the source."""
    return {"spark.jars": ",".join(str(jar) for jar in sorted(Path(JARS).glob("*.jar")))} if SERVERS else {}


def filled(path: str, topic: str, partitions: int) -> str:
    """The name of a new topic of the broker with the records of the log in ``path``, which has as many
    partitions."""
    from confluent_kafka import KafkaException, Producer  # noqa: PLC0415  (only where there is a broker)
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # noqa: PLC0415  (as above)

    admin = AdminClient({"bootstrap.servers": SERVERS})
    if topic in admin.list_topics(timeout=10).topics:
        admin.delete_topics([topic])[topic].result()
    made: Any = None
    while made is None:
        try:
            # The records are older than a broker keeps them.
            made = (
                admin.create_topics([NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})])[topic].result()
                or True
            )
        except KafkaException as error:
            if "TOPIC_ALREADY_EXISTS" not in str(error):  # it is still being deleted
                raise
    queue = {"linger.ms": 50, "batch.num.messages": 10_000, "queue.buffering.max.messages": 200_000}
    producer = Producer({"bootstrap.servers": SERVERS} | queue)
    for partition in range(partitions):
        with pyreplog.open_log(path, "r", partition=partition) as log:
            for record in log:
                while True:
                    try:
                        producer.produce(topic, record.value, record.key, partition, timestamp=record.timestamp)
                        break
                    except BufferError:
                        producer.poll(0.1)
    producer.flush()
    return topic


def read(spark: SparkSession, topic: str, *, tuned: bool) -> DataFrame:
    """A batch read of all of it."""
    made = spark.read.format("kafka").option("kafka.bootstrap.servers", SERVERS).option("subscribe", topic)
    return made.options(**(TUNED if tuned else {})).load()


def read_stream(spark: SparkSession, topic: str, per_trigger: int) -> DataFrame:
    """A stream of it from its beginning, tuned."""
    made = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", SERVERS)
        .option("subscribe", topic)
        .options(**TUNED)
    )
    return made.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", per_trigger).load()

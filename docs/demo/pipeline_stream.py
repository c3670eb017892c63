"""The pipeline's query, in a process that is going to be killed: flights in, one record per airport and day out,
once the day is over.

Spark Structured Streaming reads the topic ``flights`` from the cluster's files and writes the topic ``delays``,
which the cluster's process takes exactly once. Says a JSON line when it runs and after each micro-batch.
"""

from __future__ import annotations

import argparse
import time

from pipeline_feed import DELAYS, FLIGHTS, say
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from quiet import QUIET

from pyreplog.spark import local_session

LATENESS = "5 days"
"""Of event time: half a second at the demo's pace."""


def daily(flights: DataFrame) -> DataFrame:
    """One row per airport and day: how many flights, how many of them left, and their delays in minutes. Of a
    stream or of a batch."""
    facts = sf.from_json(sf.col("value").cast("string"), "origin string, dep_delay long")
    rows = flights.select("timestamp", facts.alias("facts")).select("timestamp", "facts.origin", "facts.dep_delay")
    groups = rows.withWatermark("timestamp", LATENESS).groupBy(sf.window("timestamp", "1 day"), "origin")
    return groups.agg(
        sf.count("*").alias("flights"),
        sf.count("dep_delay").alias("departed"),
        sf.coalesce(sf.sum("dep_delay"), sf.lit(0)).alias("minutes"),
    )


def records(days: DataFrame) -> DataFrame:
    """The rows of :func:`daily` as records: the airport is the key, the day the timestamp."""
    day: Column = sf.date_format("window.start", "yyyy-MM-dd")
    value = sf.to_json(sf.struct(day.alias("day"), sf.col("origin").alias("airport"), "flights", "departed", "minutes"))
    return days.select(sf.col("origin").alias("key"), value.alias("value"), sf.col("window.start").alias("timestamp"))


def main() -> None:
    """Run the query until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cluster")
    parser.add_argument("checkpoint")
    options = parser.parse_args()
    with local_session("replog pipeline", cores=2, config=QUIET) as spark:
        source = spark.readStream.format("replog").option("topic", FLIGHTS).option("startingOffsets", "earliest")
        flights = source.option("maxOffsetsPerTrigger", "60000").load(options.cluster)
        sink = records(daily(flights)).writeStream.format("replog").option("topic", DELAYS)
        query = sink.option("checkpointLocation", options.checkpoint).outputMode("append").start(options.cluster)
        say("running", id=str(query.id))
        last = -1
        while query.isActive:
            for progress in query.recentProgress:
                if progress["batchId"] > last:
                    last = progress["batchId"]
                    duration = progress["durationMs"].get("triggerExecution", 0)
                    say("batch", batch=last, rows=progress["numInputRows"], ms=duration)
            time.sleep(0.05)
        if query.exception() is not None:
            raise SystemExit(f"the query ended: {query.exception()}")


if __name__ == "__main__":
    main()

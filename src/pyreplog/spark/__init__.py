"""Spark's data source ``replog``. With this package installed, ``spark.read.format("replog")`` works without any
call.

The functions here are for special cases: a function on the log's Arrow batches inside the executors
(:func:`map_arrow`), how far a stream is behind (:func:`lag`), a session on this machine with a Java from PyPI
(:func:`local_session`), and registration by hand (:func:`register`) if another, broken ``pyspark_*`` package keeps
Spark from finding the source. None of them loads Spark before it is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyreplog.spark.java import ensure_java_home
from pyreplog.spark.places import LogPartition
from pyreplog.spark.query_lag import Lag, lag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from pyreplog.spark.arrow_map import BatchFunction

__all__ = ["Lag", "LogPartition", "ensure_java_home", "lag", "local_session", "map_arrow", "register"]


def register(spark: SparkSession) -> None:
    """Make ``replog`` known to ``spark`` by hand: where Spark's own search for sources fails, and in a thread of
    your own that writes."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415  (Spark is loaded when it is needed, not before)

    from pyreplog.spark.source import ReplogDataSource  # noqa: PLC0415  (as above)

    try:
        spark.dataSource.register(ReplogDataSource)
    except AnalysisException as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):  # Spark 4.0 refuses a source that it found itself
            raise
    # Where to write Spark asks the session of the thread, and a new thread of Python has none
    # before a DataFrame is made in it of data.
    spark.createDataFrame([], "nothing int")


def local_session(name: str = "pyreplog", *, cores: int = 2, config: dict[str, str] | None = None) -> SparkSession:
    """A Spark session on this machine: see :func:`pyreplog.spark.session.local_session`."""
    from pyreplog.spark import session  # noqa: PLC0415  (as above)

    return session.local_session(name, cores=cores, config=config)


def map_arrow(
    spark: SparkSession,
    fn: BatchFunction,
    schema: StructType | str,
    *,
    columns: Sequence[str] | None = None,
    **options: object,
) -> DataFrame:
    """Run ``fn`` on a log's Arrow batches, inside the executors, and return its results as a DataFrame of
    ``schema``. An aggregation by it costs a fifth of one on rows.

    Each task calls ``fn`` once with an iterator of ``pyarrow.RecordBatch``, and ``fn`` returns an iterator of
    batches of ``schema`` (DDL or a ``StructType``), whose columns are found by their names. A task has a part of
    the log, so add up the results of the tasks afterwards: ``.groupBy("hour").sum("bytes")``. ``columns`` are names
    of the DataFrame's columns, with its types; fewer are faster. ``options`` are those of a batch read:
    ``path="data/", topic="orders", startingTimestamp=...``. This call plans the read, on this machine. Raises
    :class:`ConfigError`, and the errors of planning a read. Spark needs pandas installed for this.
    """
    from pyreplog.spark import arrow_map  # noqa: PLC0415  (Spark is loaded when it is needed, not before)

    return arrow_map.map_arrow(spark, fn, schema, columns=columns, **options)

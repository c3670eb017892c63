"""Spark's data source ``replog``. With this package installed, ``spark.read.format("replog")`` works without any call.

What there is to call is for special cases: how far a stream is behind (:func:`lag`), a session on this machine with a Java that is brought
along (:func:`local_session`), and registering by hand (:func:`register`) where another broken ``pyspark_*`` package keeps Spark from
finding the source. Nothing here loads Spark before it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyreplog.spark.behind import Lag, lag
from pyreplog.spark.java import ensure_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Lag", "ensure_java_home", "lag", "local_session", "register"]


def register(spark: SparkSession) -> None:
    """Make ``replog`` known to ``spark`` by hand. Only ever needed where Spark's own search for sources fails."""
    from pyreplog.spark.source import ReplogDataSource  # noqa: PLC0415  (Spark is loaded when it is needed, not before)

    spark.dataSource.register(ReplogDataSource)


def local_session(name: str = "pyreplog", *, cores: int = 2, config: dict[str, str] | None = None) -> SparkSession:
    """A Spark session on this machine: see :func:`pyreplog.spark.session.local_session`."""
    from pyreplog.spark import session  # noqa: PLC0415  (as above)

    return session.local_session(name, cores=cores, config=config)

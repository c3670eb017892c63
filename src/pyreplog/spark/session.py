"""A Spark session on this machine, as the demo, the tests and the benchmarks use it."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Final

from pyspark.sql import SparkSession

from pyreplog.errors import ConfigError
from pyreplog.spark.java import ensure_java_home

__all__ = ["local_session"]

_DEFAULTS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def local_session(name: str = "pyreplog", *, cores: int = 2, config: dict[str, str] | None = None) -> SparkSession:
    """A session that runs on ``cores`` of this machine, with this interpreter for its workers and a Java that is found or brought.

    It listens on this machine only and has no web page. ``config`` adds Spark settings. ``with local_session() as spark`` stops it at the
    end. Raises :class:`ConfigError` where a session with other interpreters or cores runs already in this process.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    running = SparkSession.getActiveSession()
    if running is not None and running.sparkContext.master != f"local[{cores}]":
        raise ConfigError(f"a session with master {running.sparkContext.master} runs already in this process; stop it first")
    ensure_java_home()
    builder = SparkSession.builder.appName(name).master(f"local[{cores}]")
    for key, value in (_DEFAULTS | {"spark.sql.shuffle.partitions": str(cores)} | (config or {})).items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        # Spark says that it does not know pandas 3 yet; nothing here uses pandas.
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session

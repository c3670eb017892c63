"""Spark settings that keep Spark's own lines from standing between those of the demos."""

from __future__ import annotations

from pathlib import Path

QUIET = {
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
    # Over Unix sockets Spark's workers print a traceback now and then when they are ended.
    "spark.python.unix.domain.socket.enabled": "false",
}

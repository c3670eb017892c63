"""Spark settings of the demos: none of Spark's own lines between theirs, and a JVM for a minute."""

from __future__ import annotations

from pathlib import Path

LINES = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What lives for a minute gains nothing from compiling well."""

QUIET = {
    "spark.driver.extraJavaOptions": f"{LINES} {SHORT_LIVED}",
    # Over Unix sockets Spark's workers print a traceback now and then when they are ended.
    "spark.python.unix.domain.socket.enabled": "false",
}

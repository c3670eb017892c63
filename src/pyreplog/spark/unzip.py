"""A home for Spark in which its Python is not zipped.

Spark puts ``python/lib/pyspark.zip`` and py4j's zip of its home first on the path of every Python process that it
starts, one or two for each step of a query. Python keeps no byte code of a module in a zip, so each process
compiles PySpark again, which takes longer than all other work before the first row. Here both names are folders,
with the packages that this process imports.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import py4j  # type: ignore[import-untyped]
import pyspark

from pyreplog.spark.temporary import process_folder

__all__ = ["unzipped_home"]


@contextmanager
def unzipped_home() -> Iterator[None]:
    """Set ``SPARK_HOME`` to such a home within the context, for a JVM that starts there. A ``SPARK_HOME`` that is
    set already stays.

    The home is a folder of links. It is removed when this process ends, because until then the JVM starts workers
    from it.
    """
    home = None if "SPARK_HOME" in os.environ else _linked_home()
    if home is None:
        yield
        return
    os.environ["SPARK_HOME"] = home
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


@cache
def _linked_home() -> str | None:
    """One for all sessions of this process. None where PySpark did not bring its Spark along."""
    spark = Path(pyspark.__path__[0])
    zips = {package: [*(spark / "python" / "lib").glob(f"{package.__name__}*.zip")] for package in (pyspark, py4j)}
    if not all(zips.values()):
        return None
    home = process_folder("pyreplog-spark-")
    for entry in spark.iterdir():
        if entry.name != "python":
            (home / entry.name).symlink_to(entry)
    for package, paths in zips.items():
        for path in paths:
            folder = home / "python" / "lib" / path.name
            folder.mkdir(parents=True)
            (folder / package.__name__).symlink_to(package.__path__[0])
    return str(home)

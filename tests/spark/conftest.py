"""One Spark session for all tests of a process: starting one takes seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from pyreplog.spark import local_session

VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
"""Of PySpark: (major, minor)."""
KILLING = Path(__file__).parent / "killing"
ROOT = Path(__file__).parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark before 4.2 leaves sockets to the garbage collector."""
    if VERSION < (4, 2):
        for item in items:
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session")
def kill_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Names the step at which a worker dies, where there is such a file; workers look at it."""
    path = tmp_path_factory.mktemp("kill") / "step"
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "REPLOG_KILL_FILE")}
    os.environ["REPLOG_KILL_FILE"] = str(path)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(KILLING), str(ROOT), before["PYTHONPATH"] or ""]).rstrip(os.pathsep)
    yield path
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


@pytest.fixture(scope="session")
def spark(kill_file: Path) -> Iterator[SparkSession]:
    """Two cores of this machine. Its workers find the tests, and can be killed."""
    with local_session("tests", cores=2, config={"spark.driver.memory": "1g"}) as session:
        yield session

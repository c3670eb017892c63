"""One Spark session for all tests of a process: starting one takes seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from pyreplog.spark import local_session

VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
"""Of PySpark: (major, minor)."""
KILLING = Path(__file__).parent / "killing"
ROOT = Path(__file__).parents[3]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark before 4.2 leaves sockets to the garbage collector."""
    if VERSION < (4, 2):
        for item in items:
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session")
def kill_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names the step at which a worker dies, where there is such a file; workers look at it."""
    return tmp_path_factory.mktemp("kill") / "step"


@pytest.fixture(scope="session")
def spark(kill_file: Path) -> Iterator[SparkSession]:
    """Two cores of this machine. Its workers find the tests, and can be killed."""
    with ExitStack() as stack:
        # Workers have the environment of the JVM, which has ours of now. Other tests of this
        # process start programs, too.
        with pytest.MonkeyPatch.context() as during:
            during.setenv("REPLOG_KILL_FILE", str(kill_file))
            during.setenv(
                "PYTHONPATH", os.pathsep.join(filter(None, [str(KILLING), str(ROOT), os.environ.get("PYTHONPATH")]))
            )
            session = stack.enter_context(local_session("tests", cores=2, config={"spark.driver.memory": "1g"}))
        yield session

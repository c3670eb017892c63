"""One Spark session for all tests of a process: starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from pyreplog.spark import local_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores of this machine."""
    with local_session("tests", cores=2, config={"spark.driver.memory": "1g"}) as session:
        yield session

"""The data source itself: what Spark asks for by the format's name. Reading a batch is in ``batch``, a stream in ``stream``."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from pyreplog.spark.batch import ReplogReader
from pyreplog.spark.options import parse_read_options
from pyreplog.spark.schema import Field, default_ddl, project
from pyreplog.spark.stream import ReplogStreamReader

__all__ = ["ReplogDataSource"]


class ReplogDataSource(DataSource):
    """``format("replog")``: topics in a folder as a DataFrame, with the columns and options of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        """``replog``."""
        return "replog"

    def schema(self) -> str:
        """The columns without ``.schema(...)``; wrong options are refused here already."""
        return default_ddl(parse_read_options(self._given(), streaming=None).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns that ``schema`` names."""
        return ReplogReader(parse_read_options(self._given()), _fields(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """As :meth:`reader`, of a stream."""
        return ReplogStreamReader(parse_read_options(self._given(), streaming=True), _fields(schema))

    def _given(self) -> Mapping[str, str]:
        given: Mapping[str, str] = self.options
        return given


def _fields(schema: StructType) -> list[Field]:
    """What ``schema`` says, checked."""
    fields = [Field(field.name, field.dataType.simpleString(), field.nullable) for field in schema.fields]
    project(fields)
    return fields

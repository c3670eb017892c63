"""The data source itself: what Spark asks for by the format's name. Reading a batch is in ``batch``, a stream in
``stream``."""

from __future__ import annotations

from collections.abc import Mapping

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import ArrayType, StructType

from pyreplog.errors import ConfigError
from pyreplog.spark.batch import ReplogReader
from pyreplog.spark.options import parse_read_options
from pyreplog.spark.pushdown import check_safe
from pyreplog.spark.schema import Field, default_ddl, project
from pyreplog.spark.sink import ReplogStreamWriter, ReplogWriter
from pyreplog.spark.sink_options import parse_write_options
from pyreplog.spark.stream import ReplogStreamReader

__all__ = ["ReplogDataSource"]


class ReplogDataSource(DataSource):
    """``format("replog")``: topics in a folder as a DataFrame, with the columns and options of Spark's Kafka
    source."""

    @classmethod
    def name(cls) -> str:
        """``replog``."""
        return "replog"

    def schema(self) -> str:
        """The columns without ``.schema(...)``; wrong options are refused here already."""
        options = parse_read_options(self._given(), streaming=None)
        return default_ddl(options.include_headers, options.several)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns that ``schema`` names."""
        options = parse_read_options(self._given())
        check_safe(options.pushdown, pyspark.__version__)
        return ReplogReader(options, _fields(schema, options.several))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """As :meth:`reader`, of a stream."""
        options = parse_read_options(self._given(), streaming=True)
        return ReplogStreamReader(options, _fields(schema, options.several))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer of the columns of ``schema``: see ``sink``."""
        if overwrite:
            raise ConfigError("mode overwrite would delete a log; write with .mode('append')")
        return ReplogWriter(parse_write_options(self._given()), _plain_fields(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """As :meth:`writer`, of a stream."""
        if overwrite:
            raise ConfigError(
                "output mode complete would write all rows again with each batch; use append, or update with"
                " foreachBatch"
            )
        writer: DataSourceStreamWriter = ReplogStreamWriter(parse_write_options(self._given()), _plain_fields(schema))
        return writer

    def _given(self) -> Mapping[str, str]:
        given: Mapping[str, str] = self.options
        return given


def _plain_fields(schema: StructType) -> list[Field]:
    return [Field(field.name, field.dataType.simpleString(), field.nullable) for field in schema.fields]


def _fields(schema: StructType, several: bool) -> list[Field]:
    """What ``schema`` says, checked."""
    if not schema.fields and pyspark.__version__.startswith("4.0."):
        raise ConfigError(
            'the schema names no column, and of none PySpark 4.0 counts no rows: name one, as in .schema("offset long")'
        )
    fields = _plain_fields(schema)
    project(fields, several)
    for field in schema.fields:
        # Spark also compares the nullability of a list's elements, which the short text lacks.
        if isinstance(field.dataType, ArrayType) and field.dataType != field.dataType.toNullable():
            raise ConfigError(
                f"the schema says that parts of {field.name} are NOT NULL; ask for it as"
                f" {field.dataType.simpleString()}"
            )
    return fields

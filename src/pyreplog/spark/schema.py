"""The columns Spark sees: those of its own Kafka source, by name, type and order.

Pure: types are Spark's own short texts (``bigint``), which ``source`` compares with a user's schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyreplog.config import suggestion
from pyreplog.errors import ConfigError

__all__ = ["COLUMNS", "LOG", "Column", "Field", "as_ddl", "default_columns", "default_ddl", "named", "project"]


class Column(NamedTuple):
    """One column: its name and type in Spark, its source, and whether it can hold null."""

    name: str
    type: str
    source: str
    """The column of :mod:`pyreplog.arrow`; ``topic`` is added here."""
    nullable: bool
    default: bool
    """Whether it is there without being asked for."""


class Field(NamedTuple):
    """One column of a schema that a user gave: name, Spark's short text of its type, and whether it may be null."""

    name: str
    type: str
    nullable: bool


COLUMNS: Final = (
    Column("key", "binary", "key", True, True),
    Column("value", "binary", "value", True, True),
    Column("topic", "string", "topic", False, True),
    Column("partition", "int", "partition", False, True),
    Column("offset", "bigint", "offset", False, True),
    Column("timestamp", "timestamp", "timestamp", True, True),
    Column("timestampType", "int", "timestamp_type", False, True),
    Column("headers", "array<struct<key:string,value:binary>>", "headers", True, False),
    Column("leaderEpoch", "int", "leader_epoch", False, False),
)
"""All of them. ``headers`` comes with the option ``includeHeaders``, ``leaderEpoch`` only by a schema that names
it."""

LOG: Final = Column("log", "string", "log", False, True)
"""The log of a row, if the path is a pattern: its folder, relative to the part before the first wildcard."""

_BY_NAME: Final = {column.name: column for column in (*COLUMNS, LOG)}
_BY_LOWER: Final = {name.lower(): name for name in _BY_NAME}


_TIMESTAMP: Final = "timestamp_ltz"
"""The type ``timestamp`` in DDL: what Spark takes that word for depends on the session's
``spark.sql.timestampType``."""


def as_ddl(kind: str) -> str:
    """Spark's short text of a type, as a user writes it in whatever session."""
    return _TIMESTAMP if kind == "timestamp" else kind


def default_columns(include_headers: bool, several: bool = False) -> list[Column]:
    """The columns of a read without ``.schema(...)``. ``several``: of several logs."""
    columns = [column for column in COLUMNS if column.default or (include_headers and column.name == "headers")]
    return [*columns, LOG] if several else columns


def default_ddl(include_headers: bool, several: bool = False) -> str:
    """The schema of a read without ``.schema(...)``, as DDL; every column nullable, as in Kafka's source."""
    return ", ".join(f"{column.name} {as_ddl(column.type)}" for column in default_columns(include_headers, several))


def _check_log(name: str, several: bool) -> None:
    if name == LOG.name and not several:
        raise ConfigError(
            "the column log is there only if the path is a pattern of several logs, such as multi/worker-*"
        )


def named(names: Sequence[str], several: bool = False) -> list[Column]:
    """Return the columns of these names, in their order. Raise :class:`ConfigError` for an unknown name."""
    for name in names:
        _check_log(name, several)
        if name not in _BY_NAME:
            raise ConfigError(f"there is no column {name!r}{_near(name)}")
        if names.count(name) > 1:
            raise ConfigError(f"column {name!r} is named twice")
    return [_BY_NAME[name] for name in names]


def project(fields: Sequence[Field], several: bool = False) -> list[Column]:
    """The columns that ``fields`` ask for, in their order. :class:`ConfigError` for a name, type or ``NOT NULL``
    that there is not."""
    columns = []
    for field in fields:
        _check_log(field.name, several)
        column = _BY_NAME.get(field.name)
        if column is None:
            raise ConfigError(
                f"the schema asks for column {field.name!r}, which replog does not have{_near(field.name)}"
            )
        if column in columns:
            raise ConfigError(
                f"the schema names {field.name} twice, which Spark cannot take from a Python source: name it once"
            )
        if field.type != column.type:
            raise ConfigError(
                f"the schema asks for {field.name} as {field.type}; it is {as_ddl(column.type)}: read it as that and"
                " cast it, "
                f'as in df.select(df["{field.name}"].cast("{field.type}"))'
            )
        if column.nullable and not field.nullable:
            raise ConfigError(f"the schema says {field.name} is NOT NULL; it is null if a record has none")
        columns.append(column)
    return columns


def _near(name: str) -> str:
    """The column that may have been meant."""
    same = _BY_LOWER.get(name.lower())
    return suggestion(name, tuple(_BY_NAME)) if same is None else f"; did you mean {same!r}?"

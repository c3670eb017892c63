"""The replacement for the source if it cannot be loaded."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from pyspark.sql.datasource import DataSource


class BrokenSource(DataSource):
    """Says why format ``replog`` cannot be used in this environment."""

    reason: ClassVar[str] = ""

    @classmethod
    def name(cls) -> str:
        """``replog``."""
        return "replog"

    def schema(self) -> NoReturn:
        """Raise the reason."""
        raise ImportError(f"the data source 'replog' cannot be loaded by this Python: {self.reason}")

    def reader(self, schema: object) -> NoReturn:
        """Raise the reason."""
        self.schema()

    def streamReader(self, schema: object) -> NoReturn:
        """Raise the reason."""
        self.schema()

    def writer(self, schema: object, overwrite: bool) -> NoReturn:
        """Raise the reason."""
        self.schema()

    def streamWriter(self, schema: object, overwrite: bool) -> NoReturn:
        """Raise the reason."""
        self.schema()

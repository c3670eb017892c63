"""The ``applied`` file of a query: which batch the log has got last, and its fingerprint. Format:
docs/internals/format/spool.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pyreplog.errors import CorruptError
from pyreplog.spool.fingerprint import Fingerprint

__all__ = ["Applied"]

_VERSION: Final = "0"  # on disk: never change


class Applied(NamedTuple):
    """The last batch of a query that is in the log; ``batch`` is -1 before the first. ``once``: the query has no
    other batch. ``fingerprint`` is None if an older release wrote the file."""

    batch: int
    once: bool = False
    fingerprint: Fingerprint | None = None

    def to_values(self) -> dict[str, str]:
        """Return the values of the state file."""
        values = {"version": _VERSION, "batch": str(self.batch), "once": str(self.once).lower()}
        if self.fingerprint is not None:
            values["fingerprint"] = self.fingerprint.to_text()
        return values

    @classmethod
    def from_values(cls, values: Mapping[str, str], path: str) -> Applied:
        """Parse the values of the state file at ``path``. Raises :class:`CorruptError`."""
        if values.get("version") != _VERSION:
            raise CorruptError("the last batch of a query in another version", file=path)
        try:
            text = values.get("fingerprint")
            return cls(
                int(values["batch"]),
                values.get("once") == "true",
                None if text is None else Fingerprint.from_text(text),
            )
        except KeyError:
            raise CorruptError("the number of the batch is missing", file=path) from None
        except ValueError as error:
            raise CorruptError(f"not the last batch of a query: {error}", file=path) from None

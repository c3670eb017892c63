"""A manifest: which staged files are one batch of a query, in their order. There is one for a batch, or none.

Format: docs/internals/format/spool.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pyreplog.errors import CorruptError
from pyreplog.spool.fingerprint import Fingerprint
from pyreplog.spool.layout import BatchId, parse_name
from pyreplog.spool.staged import StagedFile

__all__ = ["Manifest"]

_VERSION: Final = "0"  # on disk: never change


class Manifest(NamedTuple):
    """One batch. ``once``: the query has no other batch, and it is not run again. ``fingerprint`` is None if its
    driver made none."""

    batch_id: BatchId
    files: tuple[StagedFile, ...]
    once: bool = False
    fingerprint: Fingerprint | None = None

    @property
    def record_count(self) -> int:
        """Rows in all."""
        return sum(file.record_count for file in self.files)

    def to_values(self) -> dict[str, str]:
        """As a state file has it."""
        values = {
            f"file.{number:09d}": (
                f"{file.name} {file.size} {file.footer_position} {file.footer_crc:08x} {file.record_count}"
            )
            for number, file in enumerate(self.files)
        }
        if self.fingerprint is not None:
            values["fingerprint"] = self.fingerprint.to_text()
        query, batch = self.batch_id
        return {"version": _VERSION, "query": query, "batch": str(batch), "once": str(self.once).lower(), **values}

    @classmethod
    def from_values(cls, values: Mapping[str, str], path: str) -> Manifest:
        """Return the manifest with the values of the state file at ``path``. Raise :class:`CorruptError` if they
        are not a manifest."""
        if values.get("version") != _VERSION:
            raise CorruptError("a manifest of another version", file=path)
        try:
            batch_id = BatchId(values["query"], int(values["batch"]))
            files = tuple(_file(values[name]) for name in sorted(values) if name.startswith("file."))
            once = values["once"] == "true"
            text = values.get("fingerprint")
            fingerprint = None if text is None else Fingerprint.from_text(text)
        except (KeyError, ValueError) as error:
            raise CorruptError(f"no manifest: {error}", file=path) from None
        for file in files:
            found = parse_name(file.name)
            if found is None or (found.query, found.batch) != batch_id:
                raise CorruptError(f"{file.name[:64]} is no file of {batch_id}", file=path)
        return cls(batch_id, files, once, fingerprint)


def _file(text: str) -> StagedFile:
    name, size, position, crc, count = text.split(" ")
    return StagedFile(name, int(size), int(position), int(crc, 16), int(count))

"""The spool in a folder: which batch of each query the log has got last. Its batches themselves are looked at when
they are appended."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from pyreplog.ports import Disk
from pyreplog.verify.findings import Report
from pyreplog.verify.folder import read_file
from pyreplog.verify.states import Unreadable, state

_APPLIED: Final = re.compile(r"replog\.spool\.[A-Za-z0-9_-]{1,64}\.applied")
_BATCH: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_FINGERPRINT: Final = re.compile(r"([0-9]{1,19}) ([0-9a-f]{16})")


class AppliedEntry(NamedTuple):
    """The last batch of a query, and its number of rows and sum of their hashes; -1 if the file has no
    fingerprint."""

    batch: int
    rows: int
    row_sum: int


def applied(data: bytes) -> AppliedEntry:
    """Parse a query's ``applied`` file."""
    found = state(data)
    if found.get("version") != "0":
        raise Unreadable(f"its version is {found.get('version', '')[:64]!r}, and only 0 is known")
    batch = found.get("batch", "")
    if _BATCH.fullmatch(batch) is None or int(batch) > 2**63 - 1:
        raise Unreadable(f"{batch[:64]!r} is no number of a batch")
    if "fingerprint" not in found:
        return AppliedEntry(int(batch), -1, -1)
    prints = _FINGERPRINT.fullmatch(found["fingerprint"])
    if prints is None:
        raise Unreadable(f"{found['fingerprint'][:64]!r} is no fingerprint of a batch")
    return AppliedEntry(int(batch), int(prints[1]), int(prints[2], 16))


def check_spool(disk: Disk, path: str, names: Iterable[str], book: Report) -> None:
    """Verify the ``applied`` files among ``names``, the files of the folder ``path``."""
    for name in names:
        if _APPLIED.fullmatch(name) is None:
            continue
        file = f"{path}/{name}"
        try:
            data = read_file(disk, file, book)
            if data is not None:
                applied(data)
        except Unreadable as error:
            advice = (
                "put it back from a copy; without it, the query's last batch is appended again if the query runs it"
                " again"
            )
            book.warn(file, f"damaged: {error}", advice)

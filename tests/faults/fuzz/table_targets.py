"""The small file of a table and its state with other content: a table is made again, and verify says so."""

from __future__ import annotations

from random import Random
from typing import Final

from crc32c import crc32c

from pyreplog.errors import CorruptError, PyreplogError
from pyreplog.readers import TableState, TableStore, read_table_header
from pyreplog.readers.table_store import _long_entry, decode_table_state
from pyreplog.testing import SimDisk
from pyreplog.verify.findings import Report
from pyreplog.verify.show import small_file
from pyreplog.verify.states import Unreadable
from pyreplog.verify.tables import check_tables
from tests.faults.fuzz.target import Target
from tests.interop.golden.formats import HERE, TABLE_OWNER

_NAME: Final = "replog.table-t-0"


def _seeds() -> list[bytes]:
    return [
        b"e\0\0\0\3keyvalue",
        b"h" + (HERE / "table" / "header").read_bytes(),
        b"s" + (HERE / "table" / "state.value").read_bytes(),
    ]


def _seal(data: bytes, chance: Random) -> bytes:
    """Most of the time: the checksum set right."""
    if len(data) < 6 or chance.random() < 0.25:
        return data
    return data[:-4] + crc32c(data[1:-4]).to_bytes(4, "big")


def _run(data: bytes) -> object:
    if data[:1] == b"e":
        return _long_entry(data[1:], "store")
    if data[:1] == b"s":
        return decode_table_state(data[1:], TABLE_OWNER)
    content = data[1:]
    disk = SimDisk(Random(1))
    disk.make_directory("root")
    file = disk.create(f"root/{_NAME}")
    file.write_at(0, [content])
    file.close()
    book = Report()
    check_tables(disk, "root", [_NAME], book)
    try:
        header = read_table_header(content, _NAME)
    except CorruptError:
        assert book.findings or not any(content), "verify must see what a table refuses"
        found = None
    else:
        rows = list(small_file(_NAME, content))
        assert (rows[0]["synced"], rows[0]["inode"]) == (header.is_synced, header.store[1])
        found = header.is_synced
    table = TableStore(disk, "root", "t-0", "a log")
    with table.change() as state:
        assert state is None
        table.apply({b"k": b"v"}, TableState(1, 0))
    assert table.get(b"k") == b"v"
    table.close()
    return found


TABLES: Final = Target("table", _seeds, _run, (PyreplogError, Unreadable), 2, _seal)

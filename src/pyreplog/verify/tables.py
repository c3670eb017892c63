"""The small files of tables: ``replog.table-<name>``. Their stores are LMDB files, which only a table opens."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final

from crc32c import crc32c

from pyreplog.ports import Disk
from pyreplog.verify.findings import Report
from pyreplog.verify.folder import read_file
from pyreplog.verify.states import Unreadable

TABLE: Final = "replog.table-"
STORE: Final = ".db"
_SIZE: Final = 84


def table_header(data: bytes) -> dict[str, Any]:
    """Return the fields of a table's small file. Raises Unreadable."""
    if not any(data):
        return {"about": "it vouches for no store"}
    if len(data) != _SIZE:
        raise Unreadable(f"it has {len(data)} bytes, not {_SIZE}")
    if struct.unpack_from(">I", data, 80)[0] != crc32c(data[:80]):
        raise Unreadable("its checksum is wrong")
    if data[:4] != b"RLTB" or data[4] != 1 or data[5] > 1:
        raise Unreadable("it does not begin as a table's file of version 1 does")
    device, inode = struct.unpack_from(">QQ", data, 24)
    boot = data[40:80].rstrip(b"\0")
    if not boot.isascii():
        raise Unreadable("its boot id is no text")
    return {
        "synced": bool(data[5]),
        "owner": data[8:24].hex(),
        "device": device,
        "inode": inode,
        "boot_id": boot.decode(),
    }


def check_tables(disk: Disk, path: str, names: Iterable[str], book: Report) -> None:
    """Verify the tables' small files among ``names``, the files of the folder ``path``. Damage costs only the time to
    make a table again."""
    for name in names:
        if not name.startswith(TABLE) or name.endswith(STORE):
            continue
        file = f"{path}/{name}"
        try:
            data = read_file(disk, file, book)
            if data is not None:
                table_header(data)
        except Unreadable as error:
            book.note(file, f"damaged: {error}; the table is made again at its next use")

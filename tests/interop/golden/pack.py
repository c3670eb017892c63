"""Pack what the tests use of a folder with all units into ``tests/interop/golden/kafka/``:
``python tests/interop/golden/pack.py <folder>``.

The same input gives the same bytes.
"""

from __future__ import annotations

import io
import lzma
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).parent / "kafka"
GROUPS = (
    "clean-3.9.1",
    "clean-4.1.0",
    "clean-4.3.1",
    "cluster-3.9.1",
    "cluster-4.1.0",
    "cluster-4.3.1",
    "crash-4.1.0",
    "old-format-2.8.2",
)
LEFT_OUT = ("batches-", "indexes-", "decoded-")
"""Listings that no test reads: the manifests have their hashes."""


def pack(source: Path, group: str) -> int:
    """Write one archive; its size in bytes."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted((source / group).rglob("*")):
            if path.is_file() and not path.name.startswith(LEFT_OUT):
                entry = tarfile.TarInfo(str(path.relative_to(source)))
                entry.size = path.stat().st_size
                entry.mode = 0o644
                with path.open("rb") as file:
                    archive.addfile(entry, file)
    packed = lzma.compress(plain.getvalue(), preset=9 | lzma.PRESET_EXTREME)
    (HERE / f"{group}.tar.xz").write_bytes(packed)
    return len(packed)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tests/interop/golden/pack.py <folder with all units>")
    for name in GROUPS:
        print(f"{name}: {pack(Path(sys.argv[1]), name)} bytes")

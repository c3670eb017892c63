"""What the tests of verify share: damage done to real files."""

from __future__ import annotations

from pathlib import Path


def flip(file: Path, position: int, mask: int = 1) -> None:
    """Flip bits of one byte."""
    data = bytearray(file.read_bytes())
    data[position] ^= mask
    file.write_bytes(data)

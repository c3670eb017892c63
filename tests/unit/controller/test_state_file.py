"""The file in which version 0.1 kept a controller's state, as the conversion reads it."""

from __future__ import annotations

import pytest

from pyreplog._core import crc32c
from pyreplog.controller import STATE_FILE, ControllerState, decode, encode, load
from pyreplog.errors import CorruptError
from pyreplog.testing import SimDisk
from tests.unit.controller.controller_harness import CLUSTER, ControllerHarness


def test_state_file_cut_or_flipped_anywhere_is_reported() -> None:
    """The state file cut at every byte, with a tail, and with every bit flipped is a CorruptError that names it:
    never an empty state."""
    harness = ControllerHarness()
    harness.join(1, 2, 3)
    harness.create("a")
    path = f"data/{STATE_FILE}"
    data = encode(ControllerState(CLUSTER, harness.image))
    whole = decode(data, path)
    assert encode(whole) == data
    for cut in range(len(data)):
        with pytest.raises(CorruptError, match=path):
            decode(data[:cut], path)
    with pytest.raises(CorruptError):
        decode(data + b"\n", path)
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            with pytest.raises(CorruptError, match=path):
                decode(bytes(flipped), path)
    for line in (b"[" * 100_000, b"[]", b"1", b'{"offset":1}', b"\xff"):
        with pytest.raises(CorruptError, match=path):
            decode(b"pyreplog-controller 1 %08x\n%s\n" % (crc32c(line), line), path)
    disk = SimDisk()
    disk.make_directory("data")
    disk.create(path).write_at(0, [data])
    found = load(disk, "data")
    assert found is not None
    assert encode(found) == data
    disk.flip(path, len(data) // 2)
    with pytest.raises(CorruptError, match=path):
        load(disk, "data")

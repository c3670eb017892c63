"""CRC-32C: right on every path the processor may take, for every length and start."""

from __future__ import annotations

import ctypes
import random
import re
import shutil
import subprocess
import threading
from pathlib import Path

import crc32c as peer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog._core import crc32c
from tests.oracle import batch as oracle

KERNELS = Path(__file__).parents[3] / "src" / "_core" / "kernels"
POLYNOMIAL = 0x11EDC6F41


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_published_values(data: bytes, expected: int) -> None:
    """The check value of the CRC catalogue and the examples of RFC 3720 B.4 come out."""
    assert crc32c(data) == expected
    assert oracle.crc32c(data) == expected == oracle.crc32c_table(data)


@given(st.binary(max_size=3000), st.integers(0, 0xFFFFFFFF))
def test_agrees_with_the_package(data: bytes, value: int) -> None:
    """Any bytes, continued from any value, give what the `crc32c` package gives."""
    assert crc32c(data, value) == peer.crc32c(data, value)


@pytest.mark.parametrize(
    "size", [*range(700), 767, 768, 769, 1023, 1024, 4095, 4096, 5119, 5120, 6143, 6144, 6145, 20_000, 1 << 20]
)
def test_every_length(size: int) -> None:
    """No length falls between two paths."""
    data = random.Random(size).randbytes(size)
    assert crc32c(data) == peer.crc32c(data)


@given(st.binary(max_size=2000), st.integers(0, 2000))
def test_pieces_make_the_whole(data: bytes, cut: int) -> None:
    """Continuing from the CRC of a first piece gives that of the whole; a view that starts anywhere counts its own
    bytes only."""
    view = memoryview(data)
    assert crc32c(view[cut:], crc32c(view[:cut])) == crc32c(data)
    assert crc32c(view[cut:]) == peer.crc32c(data[cut:])


def test_refuses_what_has_no_bytes() -> None:
    """A str and a number are TypeErrors, a strided view is a BufferError, a start that is no uint32 an
    OverflowError."""
    for wrong in ("text", 5, None):
        with pytest.raises(TypeError):
            crc32c(wrong)  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        crc32c(memoryview(bytes(10))[::2])
    for value in (-1, 1 << 32):
        with pytest.raises(OverflowError):
            crc32c(b"x", value)


def test_many_threads() -> None:
    """Threads that sum large buffers at the same time do not disturb one another."""
    buffers = [random.Random(seed).randbytes(100_000) for seed in range(4)]
    expected = [peer.crc32c(buffer) for buffer in buffers]
    found: dict[int, set[int]] = {i: set() for i in range(4)}

    def work(i: int) -> None:
        found[i] = {crc32c(buffers[i]) for _ in range(200)}

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: {expected[i]} for i in range(4)}


# -- the kernel alone --


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernel in a library of its own: it needs no Python."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("crc") / "crc32c.so"
    command = [compiler, "-std=c11", "-O2", "-shared", "-fPIC", str(KERNELS / "crc32c.c"), "-o", str(library)]
    subprocess.run(command, check=True, capture_output=True)
    loaded = ctypes.CDLL(str(library))
    loaded.crc32c_by.argtypes = [
        ctypes.c_int,
        ctypes.c_uint32,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.POINTER(ctypes.c_int),
    ]
    loaded.crc32c_by.restype = ctypes.c_uint32
    return loaded


def test_all_ways_agree(kernel: ctypes.CDLL) -> None:
    """Table, instruction, that beside products of 128 and of 256 bits, and folding give the same for every length
    around their thresholds (what this processor lacks falls back)."""
    data = random.Random(1).randbytes(40_000)
    used = ctypes.c_int()
    seen = set()
    bounds = [
        12_287,
        12_288,
        12_289,
        16_319,
        16_320,
        16_321,
        16_367,
        16_368,
        16_369,
        17_951,
        17_952,
        18_351,
        18_352,
        40_000,
    ]
    for size in [*range(1100), *range(1600, 1700), *range(1950, 2050), *range(6100, 6200), *bounds]:
        start = size * 2654435761 % 2**32
        expected = peer.crc32c(data[:size], start)
        for way in range(5):
            assert kernel.crc32c_by(way, start, data, size, ctypes.byref(used)) == expected, (way, size)
            seen.add(used.value)
    assert 0 in seen


def power(exponent: int) -> int:
    """x^exponent modulo the polynomial, with its bits reflected."""
    value = 1
    for _ in range(exponent):
        value <<= 1
        if value >> 32:
            value ^= POLYNOMIAL
    return int(f"{value:032b}"[::-1], 2)


def test_constants_are_the_powers_they_stand_for() -> None:
    """The multipliers written in the kernel are x^n modulo P: lanes n = 8 * size - 33, folding n = distance + 31
    and distance - 33."""
    source = re.sub(r"\s+", "", (KERNELS / "crc32c.c").read_text())
    for size in (2048, 128):
        assert f"0x{power(8 * size - 33):08x}U,0x{power(16 * size - 33):08x}U);" in source
    for rounds in (120, 12):
        powers = [f"0x{power(8 * lanes * 24 * rounds - 33):08x}U" for lanes in (1, 2, 3)]
        assert f"{','.join(powers)});" in source
    for rounds in (66, 8):
        powers = [f"0x{power(8 * lanes * 40 * rounds - 33):08x}U" for lanes in (1, 2, 3)]
        assert f"{','.join(powers)});" in source
    for distance in (1024, 256):
        assert f"pair_powers(0x{power(distance + 31):08x}U,0x{power(distance - 33):08x}U)" in source
    for distance in (512, 128):
        assert f"word_powers(0x{power(distance + 31):08x}U,0x{power(distance - 33):08x}U)" in source
    for distance in (2048, 512):
        assert f"powers(0x{power(distance + 31):08x}U,0x{power(distance - 33):08x}U)" in source
    for distance in (128, 256, 384):
        assert f"0x{power(distance + 31):08x}" in source
        assert f"0x{power(distance - 33):08x}" in source


def test_table_is_the_definition() -> None:
    """Each entry of the table is what its comment says."""
    source = (KERNELS / "crc32c_table.h").read_text()
    entries = [int(text, 16) for text in re.findall(r"0x([0-9a-f]{8}),", source)]
    assert entries[:256] == oracle.CRC_TABLE
    for k in range(1, 8):
        before, now = entries[256 * (k - 1) : 256 * k], entries[256 * k : 256 * (k + 1)]
        assert now == [(value >> 8) ^ oracle.CRC_TABLE[value & 255] for value in before]

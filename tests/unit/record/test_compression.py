"""The codecs: Kafka's framings out, everybody's framings in, and never more memory than allowed."""

from __future__ import annotations

import builtins
import contextlib
import errno
import gzip
import signal
import struct
import tracemalloc
from random import Random

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.errors import BatchTooLargeError, CorruptError, StorageError
from pyreplog.record import CODEC_NAMES, CODEC_NUMBERS, RecordBatch, compress, compression, decompress
from pyreplog.record.compression import SIZE_MAX, decompress_payload

CODECS = [CODEC_NUMBERS[name] for name in ("gzip", "snappy", "lz4", "zstd")]
NAMES = [CODEC_NAMES[codec] for codec in CODECS]
# Golden vectors: one record (timestamp 0, key "k", value "v") as Kafka's Java code wrote it.
GOLDEN = {
    "lz4": (
        "000000000000000000000049ffffffff0218abbf2600030000000000000000000000000000000000000000ffffffffffffffffffffffff"
        "ffff0000000104224d186040820900008010000000026b02760000000000"
    ),
    "snappy": (
        "000000000000000000000050ffffffff0230f1b6ab00020000000000000000000000000000000000000000ffffffffffffffffffffffff"
        "ffff0000000182534e415050590000000001000000010000000b092010000000026b027600"
    ),
    "zstd": (
        "000000000000000000000046ffffffff0231f40fb100040000000000000000000000000000000000000000ffffffffffffffffffffffff"
        "ffff0000000128b52ffd005848000010000000026b027600010000"
    ),
    "gzip": (
        "00000000000000000000004effffffff02df1a22c400010000000000000000000000000000000000000000ffffffffffffffffffffffff"
        "ffff000000011f8b08000000000000ff1360606060ca662a630000a37fcfa609000000"
    ),
}


def back(codec: int, data: bytes, size_max: int = SIZE_MAX) -> bytes:
    return bytes(decompress_payload(codec, memoryview(data), size_max))


@pytest.mark.parametrize("codec", CODECS, ids=NAMES)
@given(st.binary(max_size=300), st.integers(0, 700))
def test_what_is_compressed_comes_back(codec: int, piece: bytes, times: int) -> None:
    """Any bytes, short or over many blocks, repeating or not."""
    data = piece * times
    assert back(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", CODECS, ids=NAMES)
def test_incompressible_bytes_come_back(codec: int) -> None:
    """Random bytes, at and around the sizes of blocks."""
    random = Random(1)
    for size in (0, 1, 32767, 32768, 32769, 65535, 65536, 65537, 200_000):
        data = random.randbytes(size)
        assert back(codec, compress(codec, data)) == data
        assert back(codec, compress(codec, memoryview(bytearray(data)))) == data


@pytest.mark.parametrize("name", NAMES)
def test_kafkas_own_batches_are_read(name: str) -> None:
    """The golden batches of Kafka's Java code give their record."""
    batch = RecordBatch(bytes.fromhex(GOLDEN[name]))
    batch.check_crc()
    assert CODEC_NAMES[batch.codec] == name
    (record,) = batch.records(decompress(batch))
    assert (record.key, record.value, record.timestamp) == (b"k", b"v", 0)


def test_framings_are_kafkas() -> None:
    """What is written begins as Kafka's readers demand."""
    data = bytes(range(256)) * 600
    assert compress(CODEC_NUMBERS["lz4"], data).hex().startswith("04224d18604082")
    assert compress(CODEC_NUMBERS["lz4"], data).endswith(bytes(4))
    snappy = compress(CODEC_NUMBERS["snappy"], data)
    assert snappy.startswith(b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1))
    (first,) = struct.unpack_from(">i", snappy, 16)
    assert cramjam.snappy.decompress_raw_len(snappy[20 : 20 + first]) == 32768
    zstd = compress(CODEC_NUMBERS["zstd"], data)
    assert zstd[:4].hex() == "28b52ffd"
    assert zstd[4] & 0xE0 == 0  # no content size, not a single segment
    assert gzip.decompress(compress(CODEC_NUMBERS["gzip"], data)) == data


def test_other_clients_framings_are_read() -> None:
    """Raw snappy, concatenated xerial streams, lz4 with sizes and checksums, zstd with a content size, several gzip
    members."""
    data = bytes(range(256)) * 700
    half = len(data) // 2
    snappy, lz4, zstd, gz = (CODEC_NUMBERS[name] for name in ("snappy", "lz4", "zstd", "gzip"))
    assert back(snappy, bytes(cramjam.snappy.compress_raw(data))) == data
    assert back(snappy, compress(snappy, data[:half]) + compress(snappy, data[half:])) == data
    assert back(lz4, bytes(cramjam.lz4.compress(data))) == data
    assert back(zstd, bytes(cramjam.zstd.compress(data))) == data
    assert back(gz, gzip.compress(data[:half]) + gzip.compress(data[half:])) == data


@pytest.mark.parametrize("codec", CODECS, ids=NAMES)
def test_a_bomb_is_refused_before_it_goes_off(codec: int) -> None:
    """A small stream that would become larger than allowed raises, and not much more than allowed was ever in
    memory."""
    bomb = compress(codec, bytes(24 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(BatchTooLargeError, match="1048576 bytes"):
            back(codec, bomb, 1 << 20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
    assert len(back(codec, bomb)) == 24 << 20
    assert len(back(codec, bomb, 24 << 20)) == 24 << 20
    with pytest.raises(BatchTooLargeError):
        back(codec, bomb, (24 << 20) - 1)


@pytest.mark.parametrize("codec", CODECS, ids=NAMES)
def test_cut_and_flipped_streams_never_fail_otherwise(codec: int) -> None:
    """Cut at every byte or with any bit flipped: the bytes, other bytes, or CorruptError (the batch's checksum is
    what decides)."""
    data = b"some text, some text, other text " * 12
    stream = compress(codec, data)
    for size in range(len(stream)):
        with contextlib.suppress(CorruptError):
            assert len(back(codec, stream[:size])) <= len(data)
    for position in range(len(stream)):
        for bit in range(8):
            flipped = bytearray(stream)
            flipped[position] ^= 1 << bit
            with contextlib.suppress(CorruptError):
                back(codec, bytes(flipped), 1 << 20)


@pytest.mark.parametrize("codec", CODECS, ids=NAMES)
@given(st.binary(max_size=200))
def test_garbage_is_refused_or_read(codec: int, data: bytes) -> None:
    """No bytes at all make it fail with anything but CorruptError."""
    for content in (data, compress(codec, b"")[:7] + data, compress(codec, b"x" * 50)[:16] + data):
        with contextlib.suppress(CorruptError):
            back(codec, content, 1 << 20)


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_unknown_codecs_are_refused(codec: int) -> None:
    """Numbers that no codec has."""
    with pytest.raises(CorruptError, match="unknown"):
        compress(codec, b"x")
    with pytest.raises(CorruptError, match="unknown"):
        decompress_payload(codec, memoryview(b"x"))


def test_codecs_that_cannot_be_loaded_are_a_refusal_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor is left to load them with: a StorageError like any other, and the next trial may succeed."""
    for error in (
        OSError(errno.EMFILE, "Too many open files"),
        ImportError("x.so: cannot open shared object file: Too many open files"),
    ):

        def refuse(name: str, *rest: object, error: Exception = error) -> object:
            raise error

        with monkeypatch.context() as few:
            few.setattr(compression, "cramjam", compression._Later())  # type: ignore[attr-defined]
            few.setattr("builtins.__import__", refuse)
            with pytest.raises(StorageError) as caught:
                compression.compress(compression.GZIP, b"x")
        assert caught.value.errno == errno.EMFILE
    assert compression.compress(compression.GZIP, b"x")


def test_what_a_handler_raises_while_the_codecs_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is its caller's, and the next call loads them."""

    def ring(*_: object) -> None:
        raise TimeoutError("that is enough")

    def strike(*_: object) -> None:
        during.undo()
        signal.raise_signal(signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with monkeypatch.context() as during:
            monkeypatch.setattr(compression, "cramjam", compression._Later())  # type: ignore[attr-defined]
            with pytest.raises(TimeoutError, match="^that is enough$"):
                during.setattr(builtins, "__import__", strike)
                compression.compress(compression.GZIP, b"x")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert compression.compress(compression.GZIP, b"x")

"""The codecs of a batch's records: none, gzip, snappy, lz4, zstd, in the framings of Kafka's
clients.

Writing is strict and reading is lenient, because other clients frame snappy and lz4 differently. No
allocation exceeds a limit, whatever the input claims. cramjam implements the codecs; only the
framings are here.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, cast

from pyreplog._core import RecordBatch
from pyreplog.config import RECORDS_SIZE_MAX
from pyreplog.errors import BatchTooLargeError, CorruptError, StorageError, is_interruption
from pyreplog.ports import Buffer

if TYPE_CHECKING:
    import cramjam

    Decompress = Callable[[Buffer, Buffer], int]
else:

    class _Later:
        """Loads cramjam at its first use, so that a new process's first record need not wait for
        it.
        """

        def __getattr__(self, name):
            try:
                import cramjam as loaded  # noqa: PLC0415  (see above)
            except ModuleNotFoundError:
                raise
            except (OSError, ImportError) as error:  # no descriptor to load it with, for example
                if is_interruption(error):
                    raise
                code = getattr(error, "errno", None) or (errno.EMFILE if "open files" in str(error) else errno.EIO)
                raise StorageError(code, f"{error} while loading the codecs", "cramjam") from error
            globals()["cramjam"] = loaded
            return getattr(loaded, name)

    cramjam = _Later()

# Codec numbers in a batch's attributes. On disk and on the wire: never change.
NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_NUMBERS: Final[dict[str, int]] = {
    "none": NONE,
    "uncompressed": NONE,
    "gzip": GZIP,
    "snappy": SNAPPY,
    "lz4": LZ4,
    "zstd": ZSTD,
}
CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

SIZE_MAX: Final = RECORDS_SIZE_MAX
"""Most uncompressed bytes of one batch's records that are decompressed at once."""

_ZSTD_LEVEL: Final = 3
_GZIP_LEVEL: Final = 6  # zlib's default, as Kafka's -1
_FIRST_GUESS_SIZE: Final = 16 << 10
_GUESS_RATIO: Final = 4
_GROWTH: Final = 4

# Snappy: the framing of the xerial library. On disk: never change.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_SIZE: Final = 32 << 10
_SNAPPY_RATIO_MAX: Final = 22  # three bytes copy 64 at most
# LZ4: magic; FLG version 01, independent blocks, no checksums, no size; BD 64 KiB; the header's
# checksum. On disk: never change.
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
_LZ4_BLOCK_SIZE: Final = 64 << 10
_LZ4_STORED: Final = 1 << 31
_LZ4_END: Final = bytes(4)

_INT32: Final = struct.Struct(">i")
_UINT32_LITTLE: Final = struct.Struct("<I")


def compress(codec: int, payload: Buffer) -> bytes:
    """Return ``payload`` (records one after another) compressed by ``codec`` (1 to 4).

    Raises :class:`CorruptError` for any other codec.
    """
    match codec:
        case 1:
            return bytes(cramjam.gzip.compress(payload, level=_GZIP_LEVEL))
        case 2:
            return _snappy_compress(memoryview(payload))
        case 3:
            return _lz4_compress(memoryview(payload))
        case 4:
            # The streaming compressor leaves the content size out of the frame, as Kafka's does.
            compressor = cramjam.zstd.Compressor(_ZSTD_LEVEL)
            compressor.compress(bytes(payload))  # (it accepts only bytes)
            return bytes(compressor.finish())
    raise CorruptError(f"unknown compression codec {codec}")


def decompress(batch: RecordBatch, size_max: int = SIZE_MAX) -> memoryview:
    """Return the uncompressed records of ``batch``.

    These are the stored bytes themselves if it has no codec, else new memory of at most
    ``size_max`` bytes. Raises :class:`CorruptError` if the stream is broken or has an unknown
    codec, and :class:`BatchTooLargeError` if it is larger.
    """
    codec = batch.codec
    if codec == NONE:
        return batch.payload
    try:
        return decompress_payload(codec, batch.payload, size_max)
    except BatchTooLargeError:
        raise BatchTooLargeError(batch.base_offset, size_max) from None


def decompress_payload(codec: int, data: memoryview, size_max: int = SIZE_MAX) -> memoryview:
    """Return the uncompressed records, given a batch's stored records; see :func:`decompress`."""
    try:
        match codec:
            case 1:
                return _decompress_bounded(cramjam.gzip.decompress_into, data, 0, size_max)
            case 2:
                return _snappy_decompress(data, size_max)
            case 3:
                return _decompress_bounded(cramjam.lz4.decompress_into, data, 0, size_max)
            case 4:
                return _decompress_bounded(cramjam.zstd.decompress_into, data, 0, size_max)
    except BatchTooLargeError:
        raise BatchTooLargeError(None, size_max) from None
    except (cramjam.DecompressionError, OverflowError, struct.error) as error:
        raise CorruptError(f"{CODEC_NAMES[codec]} stream is broken: {error}") from error
    raise CorruptError(f"unknown compression codec {codec}")


def decompress_to_file(codec: int, data: memoryview, path: str) -> None:
    """Decompress a gzip, lz4 or zstd stream into the file or pipe ``path``, in constant memory.

    Raises the errors of :func:`decompress_payload`.
    """
    codecs = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}
    if codec not in codecs:
        raise CorruptError(f"unknown compression codec {codec}")
    file = cramjam.File(path, read=False, write=True)
    try:
        codecs[codec].decompress_into(data, file)
    except (cramjam.DecompressionError, OverflowError) as error:
        raise CorruptError(f"{CODEC_NAMES[codec]} stream is broken: {error}") from error
    finally:
        del file  # closes it; an error's traceback would keep it open, and a pipe's reader waiting


def _decompress_bounded(decompress_into: Decompress, data: memoryview, hint: int, size_max: int) -> memoryview:
    """Decompress into memory that grows from a guess up to ``size_max``.

    The size that the stream claims is never trusted.
    """
    size = min(max(hint, _FIRST_GUESS_SIZE, len(data) * _GUESS_RATIO), size_max)
    while True:
        room = bytearray(size)
        try:
            used = decompress_into(data, room)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
            if size >= size_max:
                raise BatchTooLargeError(None, size_max) from None
            size = min(size * _GROWTH, size_max)
            continue
        return memoryview(room)[:used]


def _snappy_compress(payload: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(payload), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(payload[start : start + _XERIAL_BLOCK_SIZE]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _snappy_decompress(data: memoryview, size_max: int) -> memoryview:
    blocks = list(_snappy_blocks(data, size_max))
    return blocks[0] if len(blocks) == 1 else memoryview(b"".join(blocks))


def snappy_blocks(data: memoryview, size_max: int) -> Iterator[memoryview]:
    """Yield the decompressed blocks of a snappy stream, one after another.

    Raises the errors of :func:`decompress_payload`.
    """
    try:
        yield from _snappy_blocks(data, size_max)
    except (cramjam.DecompressionError, OverflowError, struct.error) as error:
        raise CorruptError(f"snappy stream is broken: {error}") from error


def _snappy_blocks(data: memoryview, size_max: int) -> Iterator[memoryview]:
    """Yield the decompressed blocks of a snappy stream.

    Without the xerial magic the stream is one raw block. With it there are xerial blocks, and
    possibly further xerial headers between them. A block decompresses to at most
    ``_SNAPPY_RATIO_MAX`` times its stored bytes.
    """
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield _snappy_block(data, size_max)
        return
    if len(data) < len(_XERIAL_HEADER):
        raise CorruptError("snappy stream is broken: its header is truncated")
    total = 0
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if bytes(data[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            continue
        (size,) = cast("tuple[int]", _INT32.unpack_from(data, position))
        position += _INT32.size
        if not 0 < size <= len(data) - position:
            raise CorruptError(
                f"snappy stream is broken: a block has {size} bytes, but {len(data) - position} are left"
            )
        block = _snappy_block(data[position : position + size], size_max - total)
        total += len(block)
        position += size
        yield block


def _snappy_block(block: memoryview, size_max: int) -> memoryview:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > _SNAPPY_RATIO_MAX * len(block):
        raise CorruptError(f"snappy stream is broken: a block of {len(block)} bytes claims to hold {size}")
    if size > size_max:
        raise BatchTooLargeError(None, size_max)
    room = bytearray(size)
    used = cramjam.snappy.decompress_raw_into(block, room)
    return memoryview(room)[:used]


def _lz4_compress(payload: memoryview) -> bytes:
    parts = [_LZ4_HEADER]
    for start in range(0, len(payload), _LZ4_BLOCK_SIZE):
        raw = payload[start : start + _LZ4_BLOCK_SIZE]
        block = bytes(cramjam.lz4.compress_block(raw, store_size=False))
        if len(block) < len(raw):
            parts.append(_UINT32_LITTLE.pack(len(block)))
            parts.append(block)
        else:
            parts.append(_UINT32_LITTLE.pack(len(raw) | _LZ4_STORED))
            parts.append(bytes(raw))
    parts.append(_LZ4_END)
    return b"".join(parts)

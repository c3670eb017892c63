"""Walking the good batches at the begin of a file, and describing the damage behind them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from pyreplog._core import LOG_OVERHEAD, SegmentScanner
from pyreplog.errors import CorruptError, CorruptLogError, raise_for_status
from pyreplog.log.layout import SCAN_CHUNK_SIZE
from pyreplog.ports import File
from pyreplog.record import MAGIC, MAGIC_POSITION, SIZE_UP_TO_MAGIC, base_offset_of, size_of

_OLD_LENGTH_MIN: Final = 14
_MESSAGE_SIZE_MIN: Final = LOG_OVERHEAD + _OLD_LENGTH_MIN
_OLD_LENGTH_MAX: Final = 64 << 20


def describe_damage(file: File, position: int, size: int, newer: int, reason: str) -> str:
    """Return ``reason``, or a text about the old message format if an intact old message is at ``position``.
    ``newer`` is the position of the first batch of the current format, if there is any."""
    rest = size - position - LOG_OVERHEAD
    if rest >= _OLD_LENGTH_MIN:
        head = file.read_at(position, SIZE_UP_TO_MAGIC)
        length = size_of(head) - LOG_OVERHEAD
        # If the file is truncated while it is read, it ends here or in the body, and `reason`
        # stays.
        if (
            len(head) == SIZE_UP_TO_MAGIC
            and head[MAGIC_POSITION] in (0, 1)
            and _OLD_LENGTH_MIN <= length <= min(rest, _OLD_LENGTH_MAX)
        ):
            # Torn bytes may look like an old message, so its checksum (zlib's CRC-32) decides.
            body = file.read_at(position + LOG_OVERHEAD, length)
            if len(body) == length and zlib.crc32(body[4:]) == int.from_bytes(body[:4], "big"):
                old = f"magic {head[MAGIC_POSITION]}: a message in the format of Kafka before 0.11"
                if bytes(file.read_at(newer + MAGIC_POSITION, 1)) != bytes((MAGIC,)):
                    return f"{old} whose offset, or that of the message behind it, is damaged: they do not rise"
                return (
                    f"{old} behind newer batches, which is not read: "
                    "a Kafka 4 broker's cleaner, or copying the topic, rewrites it as magic 2"
                )
    return reason


def sound_batches(data: memoryview, damage: Callable[[str], CorruptLogError]) -> memoryview:
    """Return the batches of ``data`` before the first one with a wrong checksum, which the next read then meets. If
    the first batch is damaged, raises the error that ``damage`` makes of the reason."""
    scan = SegmentScanner(base_offset_of(data))
    taken = scan.feed(data)
    if not taken:
        raise damage(why_ended(scan))
    return data[:taken]


def why_ended(scan: SegmentScanner) -> str:
    """Return the reason why ``scan`` ended early."""
    try:
        if scan.status:
            raise_for_status(scan.status, 0)
    except CorruptError as error:
        return error.reason
    return "a batch is cut off"


def scan_segment(
    file: File,
    size: int,
    base_offset: int,
    *,
    position: int = 0,
    index_interval: int = 4096,
    check_crc: bool = True,
    tell: Callable[[int], None] | None = None,
) -> SegmentScanner:
    """Scan the first ``size`` bytes of ``file`` from ``position`` on, as :func:`feed_segment` does."""
    scan = SegmentScanner(base_offset, position=position, index_interval=index_interval, check_crc=check_crc)
    return feed_segment(scan, file, size, tell)


def feed_segment(
    scan: SegmentScanner, file: File, size: int, tell: Callable[[int], None] | None = None
) -> SegmentScanner:
    """Feed ``scan`` from its position up to byte ``size`` of ``file``, in bounded chunks, until a batch is damaged.
    Returns ``scan``. ``tell`` is called after each chunk with the number of bytes that the scan took."""
    want = SCAN_CHUNK_SIZE
    while scan.position < size:
        start = scan.position
        asked = min(want, size - start)
        data = file.read_at(start, asked)
        taken = scan.feed(data)
        if tell is not None:
            tell(scan.position - start)
        if (
            scan.status or scan.gap or not len(data) or (len(data) < asked and not taken)
        ):  # the file is shorter than it was
            break
        if taken:
            want = SCAN_CHUNK_SIZE
            if scan.position == start + len(data):
                continue
        needed = scan.needed or _MESSAGE_SIZE_MIN
        if needed > size - scan.position or (not taken and len(data) >= needed):
            break
        want = max(SCAN_CHUNK_SIZE, needed)
    return scan

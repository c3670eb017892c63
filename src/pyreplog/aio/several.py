"""``scan`` of several logs for asyncio: a thread opens the folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Literal

from pyreplog import runtime
from pyreplog.aio.calls import ThreadCalls
from pyreplog.arrow import Scan
from pyreplog.config import MAX_BATCH_BYTES
from pyreplog.errors import CorruptLogError

__all__ = ["scan"]


async def scan(
    paths: Iterable[str | os.PathLike[str]],
    columns: Sequence[str] | None = None,
    *,
    topic: str | None = None,
    partition: int | None = None,
    start: int | None = None,
    end: int | None = None,
    start_timestamp: int | datetime | None = None,
    end_timestamp: int | datetime | None = None,
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    above_high_watermark: bool = False,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    skip_damaged: bool | Callable[[CorruptLogError], object] = False,
) -> Scan:
    """Open several logs as one Arrow stream, as :func:`pyreplog.scan` does.

    The importer of the stream reads the disk: ``await asyncio.to_thread(pyarrow.table, scan)``.
    """
    calls = ThreadCalls("several logs")
    try:
        return await calls.read(
            runtime.scan,
            paths,
            columns,
            topic=topic,
            partition=partition,
            start=start,
            end=end,
            start_timestamp=start_timestamp,
            end_timestamp=end_timestamp,
            isolation=isolation,
            above_high_watermark=above_high_watermark,
            max_batch_bytes=max_batch_bytes,
            skip_damaged=skip_damaged,
        )
    finally:
        calls.stop()

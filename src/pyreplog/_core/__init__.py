"""The one door to the compiled core. Import from here, never from the modules behind it: the layer check sees only
this file."""

from pyreplog.mypyc_build import advice_on

try:
    from pyreplog._core import _platform as _platform
    from pyreplog._core.batch import (
        HEADER_SIZE,
        LOG_OVERHEAD,
        Record,
        RecordBatch,
        chained_frame,
        crc32c,
        delivered,
        stamp,
    )
    from pyreplog._core.builder import Ack, BatchBuilder, Gathering, find_too_large
    from pyreplog._core.cleaner import (
        CLEAN_FULL,
        CLEAN_GAP,
        CLEAN_OTHER,
        CLEAN_ROOM,
        BatchCleaner,
        BatchWalk,
        KeyMap,
        find_gaps,
        find_unkeyed,
        write_header,
    )
    from pyreplog._core.columns import COLUMNS, LOG_COLUMN, ArrowBatch, ArrowSchema, ArrowStream, ColumnsBuilder
    from pyreplog._core.legacy import legacy_messages
    from pyreplog._core.rows import RowEncoder, murmur2, xxh64
    from pyreplog._core.segment import (
        OffsetIndex,
        SegmentScanner,
        TimeIndex,
        TimeSearch,
        find_offset,
        find_producers,
        find_timestamp,
        whole_batches,
    )
    from pyreplog._core.shared import APPEND_DONE, APPEND_REFUSED, QuickAppend
    from pyreplog._core.table import ArrowRows
    from pyreplog._core.tail import (
        ENTRIES_PENDING_MAX,
        TAIL_COUNT,
        UNKNOWN_POSITION,
        LogSlice,
        ProducerEntry,
        SegmentEnd,
        SentBatch,
        TailBudget,
        TailCache,
    )
except ImportError as _error:
    _why = advice_on(
        _error,
        "the compiled core of pyreplog is missing, or not all of it is of one build; build it anew: "
        "`pip install --force-reinstall pyreplog`; in a checkout `make .venv/.ready-core`",
    )
    raise ImportError(f"{_error}: {_why}", name=_error.name, path=_error.path) from _error

__all__ = [
    "APPEND_DONE",
    "APPEND_REFUSED",
    "CLEAN_FULL",
    "CLEAN_GAP",
    "CLEAN_OTHER",
    "CLEAN_ROOM",
    "COLUMNS",
    "ENTRIES_PENDING_MAX",
    "HEADER_SIZE",
    "LOG_COLUMN",
    "LOG_OVERHEAD",
    "TAIL_COUNT",
    "UNKNOWN_POSITION",
    "Ack",
    "ArrowBatch",
    "ArrowRows",
    "ArrowSchema",
    "ArrowStream",
    "BatchBuilder",
    "BatchCleaner",
    "BatchWalk",
    "ColumnsBuilder",
    "Gathering",
    "KeyMap",
    "LogSlice",
    "OffsetIndex",
    "ProducerEntry",
    "QuickAppend",
    "Record",
    "RecordBatch",
    "RowEncoder",
    "SegmentEnd",
    "SegmentScanner",
    "SentBatch",
    "TailCache",
    "TailBudget",
    "TimeIndex",
    "TimeSearch",
    "chained_frame",
    "crc32c",
    "delivered",
    "find_gaps",
    "find_offset",
    "find_producers",
    "find_timestamp",
    "find_too_large",
    "find_unkeyed",
    "murmur2",
    "legacy_messages",
    "stamp",
    "whole_batches",
    "write_header",
    "xxh64",
]

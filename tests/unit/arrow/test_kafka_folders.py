"""Folders written by Kafka, scanned: the rows are those of the record reader, and time ranges select exactly
them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pyreplog.arrow import COLUMNS, Scan
from pyreplog.log import open_readers
from pyreplog.record import records_of
from pyreplog.system import SystemDisk
from tests.interop.golden.units import UNITS, unit

TIMES_TRIED = 6


def rows(scan: Scan) -> list[tuple[Any, ...]]:
    """(offset, timestamp, type, key, value, headers, epoch) of each row, the timestamp as a number."""
    found: list[tuple[Any, ...]] = []
    for batch in scan.batches():
        columns = pa.record_batch(batch)
        columns.validate(full=True)
        timestamps = [
            -1 if value is None else value for value in columns.column("timestamp").cast(pa.int64()).to_pylist()
        ]
        headers = [
            [(header["key"], header["value"]) for header in row] for row in columns.column("headers").to_pylist()
        ]
        plain = [
            columns.column(name).to_pylist() for name in ("offset", "timestamp_type", "key", "value", "leader_epoch")
        ]
        found += list(zip(plain[0], timestamps, plain[1], plain[2], plain[3], headers, plain[4], strict=True))
    return found


@pytest.mark.parametrize("name", UNITS)
def test_scans_give_what_the_record_reader_gives(name: str) -> None:
    """Every partition of the unit, whole and from and to some of its own times (unordered, extreme, none, compacted
    ones too)."""
    readers = open_readers(SystemDisk(), str(unit(name) / "data"))
    for (topic, partition), reader in readers.items():
        if topic.startswith("__"):
            continue
        wanted = [
            (r.offset, r.timestamp, int(r.timestamp_type), r.key, r.value, list(r.headers), r.leader_epoch)
            for batch in reader.batches(reader.start_offset, reader.end_offset)
            for r in records_of(batch, topic, partition, reader.start_offset, reader.end_offset)
        ]
        source = [(partition, reader)]
        assert rows(Scan(source, columns=COLUMNS)) == wanted
        times = sorted({row[1] for row in wanted if row[1] != -1})
        for timestamp in times[:: max(1, len(times) // TIMES_TRIED)]:
            later = rows(Scan(source, columns=COLUMNS, start_timestamp=timestamp))
            assert later == [row for row in wanted if row[1] >= timestamp], f"{topic}-{partition} from {timestamp}"
            earlier = rows(Scan(source, columns=COLUMNS, end_timestamp=timestamp))
            assert earlier == [row for row in wanted if row[1] != -1 and row[1] < timestamp], (
                f"{topic}-{partition} to {timestamp}"
            )
    for reader in readers.values():
        reader.close()

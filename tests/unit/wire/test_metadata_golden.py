"""Metadata records as brokers wrote them: read, and written again to the very same bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyreplog.errors import RemoteProtocolError
from pyreplog.log import open_readers
from pyreplog.record import records_of
from pyreplog.system import SystemDisk
from pyreplog.wire.binary import Reader
from pyreplog.wire.codec import decode_record, encode_record
from pyreplog.wire.layouts import RECORDS
from tests.interop.golden import units

SPOKEN = {key: (version, oldest) for key, version, oldest in RECORDS.values()}
UNITS = ("clean-3.9.1", "clean-4.1.0", "clean-4.3.1", "cluster-4.1.0/n1")


def values_of(unit: str) -> list[tuple[int, bytes]]:
    """(offset, value) of the records of a unit's metadata log that are no control records."""
    found: list[tuple[int, bytes]] = []
    for reader in open_readers(
        SystemDisk(), str(units.unit(unit) / "data" / "__cluster_metadata-0"), "__cluster_metadata"
    ).values():
        for batch in reader.batches(reader.start_offset, reader.end_offset):
            found.extend((record.offset, record.value or b"") for record in records_of(batch))
        reader.close()
    return found


@pytest.mark.parametrize("unit", UNITS)
def test_what_brokers_wrote(unit: str) -> None:
    """Every record of a type and version that is spoken is read, and written again gives the broker's bytes; others
    are refused by name."""
    kinds: dict[int, int] = {}
    refused = 0
    for _, value in values_of(unit):
        source = Reader(value)
        frame, key, version = source.varint(), source.varint(), source.varint()
        assert frame == 1
        newest, oldest = SPOKEN.get(key, (-1, 0))
        if oldest <= version <= newest:
            record = decode_record(value)
            if version == newest:
                assert encode_record(record) == value
            kinds[key] = kinds.get(key, 0) + 1
        else:
            refused += 1
            with pytest.raises(RemoteProtocolError, match="not known here"):
                decode_record(value)
    assert kinds[2] > 0
    assert kinds[3] > 0
    assert refused > 0


def test_what_brokers_meant() -> None:
    """Topics, partitions and settings say what Kafka's own decoder says."""
    path = units.unit("clean-4.1.0") / "decoded-__cluster_metadata-0.ndjson"
    if not path.exists():
        pytest.skip("Kafka's decoding is in the whole set only: REPLOG_FIXTURES=")
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    decoded = {line["offset"]: line["payload"] for line in lines if "payload" in line and line["file"].endswith(".log")}
    checked = 0
    for offset, value in values_of("clean-4.1.0"):
        payload = decoded[offset]
        data = payload["data"]
        if payload["type"] in {"TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD", "PARTITION_CHANGE_RECORD"}:
            record = decode_record(value)
            for name, theirs in data.items():
                snake = "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)
                assert getattr(record, snake) == theirs
            checked += 1
    assert checked > 50

"""Taking in metadata costs what its records cost, however they are grouped."""

from __future__ import annotations

from typing import Any, SupportsIndex

from pyreplog.node.metadata import _run_of_partitions
from pyreplog.wire import PartitionRecord, TopicRecord


class Counted(list[Any]):
    """Counts the entries that are handed out."""

    looks = 0

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        found = super().__getitem__(index)
        self.looks += len(found) if isinstance(index, slice) else 1
        return found


def test_topics_of_one_partition_are_not_quadratic() -> None:
    """Each run is found by looking at its own records alone."""
    records = Counted()
    for number in range(1000):
        records.append((2 * number, TopicRecord(f"t{number}", f"id{number}")))
        records.append((2 * number + 1, PartitionRecord(0, f"id{number}", [1], [1])))
    runs = [_run_of_partitions(records, index) for index in range(1, len(records), 2)]
    assert [[key for key, _ in run] for run in runs] == [[(f"id{number}", 0)] for number in range(1000)]
    assert records.looks < 10 * len(records)
    broken = [
        (5, PartitionRecord(0, "a", [1], [1])),
        (6, PartitionRecord(1, "a", [1], [1])),
        (8, PartitionRecord(2, "a", [1], [1])),
    ]
    assert [key for key, _ in _run_of_partitions(broken, 0)] == [("a", 0), ("a", 1)]

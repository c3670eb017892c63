"""Decisions are counted once each, from committed records, whatever server applies them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pyreplog.controller import MetadataCounts, MetadataImage
from pyreplog.wire import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)

TOPIC = "topic"
CHANGES = st.lists(
    st.one_of(
        st.builds(
            PartitionChangeRecord,
            st.integers(0, 1),
            st.just(TOPIC),
            isr=st.none() | st.sets(st.integers(1, 3), min_size=1).map(tuple),
            leader=st.sampled_from([-2, -1, 1, 2]),
            leader_recovery_state=st.sampled_from([-1, 0, 1]),
        ),
        st.builds(BrokerRegistrationChangeRecord, st.integers(1, 3), st.just(1), fenced=st.sampled_from([-1, 0, 1])),
    ),
    max_size=12,
)


def counted(records: Sequence[MetadataRecord]) -> tuple[int, int, int, int, int]:
    """The slow twin: one record after the other."""
    isr = {0: {1, 2, 3}, 1: {1, 2, 3}}
    elections = unclean = shrinks = expansions = fencings = 0
    for record in records:
        if isinstance(record, BrokerRegistrationChangeRecord):
            fencings += record.fenced == 1
        elif isinstance(record, PartitionChangeRecord):
            elections += record.leader >= 0
            unclean += record.leader >= 0 and record.leader_recovery_state == 1
            if record.isr is not None:
                after = set(record.isr)
                shrinks += not after >= isr[record.partition_id]
                expansions += not after <= isr[record.partition_id]
                isr[record.partition_id] = after
    return elections, unclean, shrinks, expansions, fencings


@given(changes=CHANGES, cuts=st.lists(st.integers(0, 12), max_size=4))
def test_like_the_slow_twin(changes: list[MetadataRecord], cuts: list[int]) -> None:
    """Two servers apply the same records in parts of their own; each record counts once."""
    counts = MetadataCounts()
    images = [MetadataImage(), MetadataImage()]
    for image in images:
        image.apply(0, TopicRecord("orders", TOPIC))
        for number in (0, 1):
            image.apply(1 + number, PartitionRecord(number, TOPIC, (1, 2, 3), (1, 2, 3), leader=1))
    records = [(offset, record) for offset, record in enumerate(changes, 3)]
    ends = [sorted({*cuts, len(records)}), [len(records)]]
    for image, parts in zip(images, ends, strict=True):
        begin = 0
        for end in parts:
            some = records[begin : max(begin, end)]
            counts.note(image, some)
            for offset, record in some:
                if isinstance(record, PartitionChangeRecord):
                    image.apply(offset, record)
                else:
                    image.offset = offset
            begin = max(begin, end)
    found = (counts.elections, counts.unclean_elections, counts.isr_shrinks, counts.isr_expansions, counts.fencings)
    assert found == counted(changes)

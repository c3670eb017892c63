"""S23: the position of a named reader never skips a record in silence, and moves back only by a seek or a lost commit.

Random programs append, read, commit, delete, restart, kill and lose power; a slow twin knows what the reader has seen.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyreplog
from pyreplog import DataLossError, LogTruncatedError, RecordsDeletedError, TopicPartition, open_log
from pyreplog.testing import SimClock, SimDisk

KEY = TopicPartition("events", 0)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 6)),
        st.tuples(st.just("poll"), st.integers(1, 8)),
        st.tuples(st.just("next"), st.integers(1, 4)),
        st.tuples(st.just("power"), st.integers(0, 1000)),
        st.tuples(st.just("delete"), st.integers(0, 100)),
        st.tuples(st.sampled_from(["commit", "commit synced", "reopen", "kill", "end", "table"]), st.just(0)),
    ),
    min_size=5,
    max_size=40,
)


class Reading:
    """A log, its reader, and what the reader has seen."""

    def __init__(self) -> None:
        self.disk, self.clock = SimDisk(Random(1)), SimClock()
        self.written = 0
        self.place = 0
        """The next offset that the reader must get."""
        self.seen: dict[int, bytes | None] = {}
        """The records that it got since its last seek, by offset."""
        self.commits = [0]
        """The offsets that were committed since the last sync, with the synced one first. Power loss leaves one."""
        self.told: list[type[DataLossError]] = []
        self.open()

    def open(self, *, lost_power: bool = False) -> None:
        """Open the log and its reader."""
        self.log = open_log("events", disk=self.disk, clock=self.clock, durability="os")
        self.open_reader(lost_power=lost_power)

    def open_reader(self, *, lost_power: bool = False) -> None:
        """Open the reader: at the last commit, or after power loss at one since the last sync."""
        self.reader = self.log.consumer("billing")
        found = self.reader.committed(KEY)
        known = self.commits if lost_power else self.commits[-1:]
        begins = lost_power and known[0] == 0 and found == self.log.start_offset  # of a damaged file, which says so
        assert (found or 0) in known or begins, f"it is at {found}, and {self.commits} were committed"
        if lost_power:
            self.commits = [found or 0]
        self.place = self.log.start_offset if found is None else found

    def take(self, records: list[pyreplog.Record]) -> None:
        """These follow exactly what the reader had, and all that it has seen is still so."""
        for record in records:
            assert record.offset == self.place
            self.seen[record.offset] = record.value
            self.place += 1
        there = {record.offset: record.value for record in self.log.read()}
        for offset, value in self.seen.items():
            if offset >= self.log.start_offset and offset < self.place:
                assert there.get(offset) == value, f"offset {offset} has changed, and the reader was not told"

    def read(self, step: str, count: int) -> None:
        """Read in one of the ways, or be told of a loss, and seek then."""
        try:
            if step == "poll":
                self.take(self.reader.poll(0, count))
            elif step == "next":
                there, records = self.log.end_offset - self.place, iter(self.reader)
                if there > 0:  # else it would wait
                    self.take([next(records) for _ in range(min(count, there))])
            elif step == "end":
                self.take(list(self.reader.until_end()))
            else:
                self.place += len(self.reader.poll_arrow())
                self.seen.clear()
        except DataLossError as error:
            self.told.append(type(error))
            assert (error.committed, error.found) == (
                self.place,
                self.log.start_offset if isinstance(error, RecordsDeletedError) else error.found,
            )
            assert isinstance(error, RecordsDeletedError) == (self.place < self.log.start_offset)
            if isinstance(error, LogTruncatedError):
                assert error.found is not None
                assert error.found < self.place
            with pytest.raises(type(error)):
                self.reader.poll()
            self.reader.seek_to_beginning()
            self.place = self.log.start_offset
            self.seen.clear()

    def step(self, step: str, number: int) -> None:
        """Do one thing."""
        if step == "append":
            self.log.append_many([b"%d" % (self.written + one) for one in range(number)])
            self.written += number
        elif step in ("poll", "next", "end", "table"):
            self.read(step, number)
        elif step.startswith("commit"):
            if self.told and not self.reader.committed(KEY):
                return
            try:
                self.reader.commit(sync=step == "commit synced")
            except DataLossError:
                return
            last = self.reader.committed(KEY) or 0
            self.commits = [last] if step == "commit synced" else [*self.commits, last]
        elif step == "delete":
            self.log.delete_records(
                self.log.start_offset + number * (self.log.end_offset - self.log.start_offset) // 200
            )
        elif step == "reopen":
            self.reader.close()
            self.open_reader()
        else:
            left = self.disk.snapshot() if step == "kill" else self.disk.crash(Random(number))
            self.log.close()
            self.disk = left
            self.open(lost_power=step == "power")
            if step == "power":
                # An `os` log may lose all traces of its newest epoch, and use the number again. A
                # reader that comes back only when the log has grown past its place cannot tell.
                self.read("end", 0)


@given(STEPS)
@settings(max_examples=40, deadline=None)
def test_no_record_is_skipped_in_silence(steps: list[tuple[str, int]]) -> None:
    """Each record comes in its turn, or an error names what is gone (G19)."""
    reading = Reading()
    for step in steps:
        reading.step(*step)
    reading.step("end", 0)
    reading.step("end", 0)  # the first one may have been told of a loss
    assert reading.place == reading.log.end_offset
    reading.log.close()

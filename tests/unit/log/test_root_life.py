"""The whole life of a root, drawn by seeds: many partitions that are made, written, cut, emptied and removed,
closed and killed, opened asleep or not, and whose small files get lost in between. Held against a model that keeps
every record in a list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import pytest

from pyreplog.config import LogConfig
from pyreplog.log import Log, LogRoot, UnloadedLog, open_readers, random_uuid
from pyreplog.log.layout import CLEAN_SHUTDOWN_NAME, MARK_NAME, SUMMARIES_NAME
from pyreplog.record import BatchBuilder
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from pyreplog.verify import Level, verify
from tests.unit.log.support import StillClock, contents, sync

STEPS: Final = 150
ROOT: Final = "data/root"
TOPICS: Final = ("a", "a-1", "a-1-0", "b.c", "t")
SIZES: Final = (1, 3, 20, 22)
"""Partitions: with 16 and more a root remembers summaries, and its logs sleep."""

Row = tuple[int, int, bytes | None, bytes | None, int]
"""Offset, timestamp, key, value, leader epoch."""


@dataclass
class Model:
    """What a partition is to be."""

    config: LogConfig
    batches: list[list[Row]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    high_watermark: int = 0

    @property
    def rows(self) -> list[Row]:
        """What is there, in order."""
        return [row for batch in self.batches for row in batch if row[0] >= self.start]


class Life:
    """A root and its models; every step is drawn."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimDisk(Random(seed))
        self.disk.make_directory("data")
        self.clock = StillClock()
        count = SIZES[seed % len(SIZES)]
        self.keys = [TopicPartition(TOPICS[number % len(TOPICS)], number // len(TOPICS)) for number in range(count)]
        self.models: dict[TopicPartition, Model] = {}
        self.epoch = 0
        self.told: list[str] = []
        """The steps so far, for who looks at a failure."""
        self.root = self.open()

    # -- the root --

    def open(self) -> LogRoot:
        """Open what is there: everything that was left is there, asleep or not."""
        root = LogRoot.open(
            self.disk, ROOT, clock=self.clock, random=Random(self.random.random()), lazy=self.random.random() < 0.85
        )
        assert not root.damaged
        assert sorted(root.logs) == sorted(self.models)
        for key, model in self.models.items():
            log = root.logs.peek(key)
            found = (log.start_offset, log.end_offset, log.high_watermark, log.durability)
            assert found == (model.start, model.end, model.high_watermark, model.config.durability), key
        return root

    def step(self) -> None:
        """One of the things that happen."""
        if not self.models or (len(self.models) < len(self.keys) and self.random.random() < 0.3):
            self.create()
            return
        key = self.random.choice(list(self.models))
        ways: list[tuple[int, Callable[[TopicPartition], None]]] = [
            (36, self.append),
            (9, self.sync),
            (9, self.advance),
            (6, self.delete),
            (5, self.retain),
            (4, self.configure),
            (4, self.truncate),
            (10, self.check),
            (3, self.wait),
            (2, self.remove),
            (2, self.begin_epoch),
            (4, self.close),
            (3, self.kill),
        ]
        (chosen,) = self.random.choices([way for _, way in ways], [weight for weight, _ in ways])
        self.told.append(f"{chosen.__name__} {key}")
        chosen(key)

    def create(self) -> None:
        """A partition more."""
        key = self.random.choice([key for key in self.keys if key not in self.models])
        config = LogConfig(durability="sync" if self.random.random() < 0.5 else "os", **self.settings())
        self.told.append(f"create {key}")
        log = self.root.create_log(*key, random_uuid(Random(key.topic)), config)
        self.models[key] = Model(config)
        log.become_leader(self.epoch)

    def settings(self) -> dict[str, Any]:
        """Small segments and indexes, old and new records, every codec."""
        draw = self.random.choice
        return {
            "segment_bytes": draw([1024, 2048, 1 << 20]),
            "segment_ms": draw([604_800_000, 1000, 1]),
            "segment_index_bytes": draw([24, 48, 10_485_760]),
            "index_interval_bytes": draw([0, 50, 4096]),
            "preallocate": self.random.random() < 0.3,
            "retention_ms": draw([-1, -1, 0, 1_000_000]),
            "retention_bytes": draw([-1, -1, 0, 1500]),
            "file_delete_delay_ms": draw([0, 60_000]),
            "message_timestamp_type": draw(["CreateTime", "CreateTime", "LogAppendTime"]),
            "compression_type": draw(["producer", "producer", "lz4", "zstd", "gzip", "snappy"]),
        }

    def close(self, key: TopicPartition) -> None:
        """An end in order; the folder is whole; and sometimes a file that can be made again is gone when it is
        opened."""
        self.root.close()
        worst = [finding for finding in verify(self.disk, ROOT).findings if finding.level is Level.DAMAGE]
        assert not worst
        if self.random.random() < 0.5:
            self.lose(key)
        self.root = self.open()
        self.root.logs[key].write_mark()  # has what was lost again: what is known from one file only may be lost next

    def kill(self, _: TopicPartition) -> None:
        """The process ends; what it wrote is there."""
        self.disk = self.disk.snapshot()
        self.root = self.open()

    def lose(self, key: TopicPartition) -> None:
        """Files of which everything is known from others are gone."""
        folder = f"{ROOT}/{key}"
        inside, beside = self.disk.list(folder), self.disk.list(ROOT)
        what = self.random.choice(["mark", "indexes", "snapshots", "epochs", "store", "marker", "checkpoints"])
        gone = {
            "mark": [f"{folder}/{MARK_NAME}"],
            "indexes": [f"{folder}/{name}" for name in inside if name.endswith("index")],
            "snapshots": [f"{folder}/{name}" for name in inside if name.endswith(".snapshot")],
            "epochs": [f"{folder}/leader-epoch-checkpoint"],
            "store": [f"{ROOT}/{name}" for name in beside if name.startswith(SUMMARIES_NAME)],
            "marker": [f"{ROOT}/{CLEAN_SHUTDOWN_NAME}"],
            "checkpoints": [f"{ROOT}/{name}" for name in beside if name.endswith("-checkpoint")],
        }[what]
        if what in ("snapshots", "epochs"):
            gone.append(f"{ROOT}/{CLEAN_SHUTDOWN_NAME}")
        self.told.append(f"  without its {what}")
        for path in gone:
            if self.disk.stat(path) is not None:
                self.disk.remove(path)

    def remove(self, key: TopicPartition) -> None:
        """A partition goes."""
        self.root.remove_log(key)
        del self.models[key]

    def wait(self, _: TopicPartition) -> None:
        """Time passes."""
        self.clock.now_ms += self.random.choice([1, 1000, 100_000, 10_000_000])

    def begin_epoch(self, _: TopicPartition) -> None:
        """Somebody was elected."""
        self.epoch += 1

    # -- a log --

    def log(self, key: TopicPartition) -> Log:
        """Loaded by its handle, or by the table."""
        log = self.root.logs.peek(key)
        return log.load() if isinstance(log, UnloadedLog) and self.random.random() < 0.5 else self.root.logs[key]

    def append(self, key: TopicPartition) -> None:
        """A batch, whose times may lie before those of others, or be none."""
        model, log, random = self.models[key], self.log(key), self.random
        now = self.clock.now_ms
        base_ms = random.choice([now, now - 1000, now + 5000, 0, -1])
        epoch = max(self.epoch, log.epochs.latest)
        builder, rows = BatchBuilder(), list[Row]()
        for offset in range(model.end, model.end + random.choice([1, 1, 2, 5, 12])):
            stamp = base_ms if base_ms < 0 else base_ms + random.choice([0, 1, 2])
            name = random.choice([None, b"", b"k%d" % offset])
            value = random.choice([None, (b"%d-" % offset).ljust(random.choice([1, 10, 45]), b"x")])
            assert builder.append(value, name, (("h", b"1"),), stamp)
            kept = now if model.config.message_timestamp_type == "LogAppendTime" else stamp
            rows.append((offset, kept, name, value, epoch))
        assert log.append_as_leader(builder.finish(), epoch).base_offset == model.end
        model.batches.append(rows)
        model.end += len(rows)

    def sync(self, key: TopicPartition) -> None:
        """What is there is on the disk."""
        sync(self.disk, self.root.logs[key])

    def advance(self, key: TopicPartition) -> None:
        """The high watermark, as far as it may."""
        model, log = self.models[key], self.root.logs[key]
        offset = min(log.ack_offset, self.random.randint(model.high_watermark, model.end))
        log.advance_high_watermark(offset)
        log.write_mark()
        model.high_watermark = max(model.high_watermark, offset)

    def delete(self, key: TopicPartition) -> None:
        """Records at the beginning, all that are committed too."""
        model = self.models[key]
        offset = self.random.choice([model.high_watermark, self.random.randint(model.start, model.high_watermark)])
        assert self.log(key).delete_records(offset) == offset
        model.start = offset

    def retain(self, key: TopicPartition) -> None:
        """Old segments go, if the settings say so, and only committed ones."""
        model = self.models[key]
        self.log(key).apply_retention(confirmed=self.random.random() < 0.5)
        start = self.root.logs.peek(key).start_offset
        assert model.start <= start <= model.high_watermark or start == model.start
        if model.config.retention_ms < 0 and model.config.retention_bytes < 0:
            assert start == model.start
        model.start = start

    def configure(self, key: TopicPartition) -> None:
        """Other settings."""
        model = self.models[key]
        model.config = LogConfig(durability=model.config.durability, **self.settings())
        self.log(key).update_config(model.config)

    def truncate(self, key: TopicPartition) -> None:
        """A cut at any offset: the batch that holds it goes, and what is below the first segment is nothing."""
        model, log = self.models[key], self.root.logs[key]
        first = log.first_base_offset
        offset = self.random.choice([model.end, self.random.randint(model.start, model.end), max(model.start - 1, 0)])
        log.truncate_to(offset)
        if offset >= model.end:
            return
        model.batches = [batch for batch in model.batches if batch[-1][0] < offset]
        end = model.batches[-1][-1][0] + 1 if model.batches else first
        model.end = offset if offset < first else max(end, first)
        model.batches = [batch for batch in model.batches if batch[0][0] >= first]
        model.start = min(model.start, model.end)
        model.high_watermark = max(min(model.high_watermark, model.end), model.start)

    def check(self, key: TopicPartition) -> None:
        """Every record, by offset, by time, by epoch; and what a reader beside sees."""
        model, log, random = self.models[key], self.root.logs[key], self.random
        rows = model.rows
        assert (log.start_offset, log.end_offset, log.high_watermark) == (model.start, model.end, model.high_watermark)
        found = [(one.offset, one.timestamp, one.key, one.value, one.leader_epoch) for one in contents(log)]
        assert found == rows
        times = [*(row[1] for row in rows), 0, self.clock.now_ms]
        for _ in range(3):
            wanted, end = (
                max(random.choice(times) + random.choice([-1, 0, 1]), 0),
                random.randint(model.start, model.end),
            )
            first = next(((row[0], row[1]) for row in rows if row[1] >= wanted and row[0] < end), None)
            assert log.find_timestamp(wanted, end) == first
        for row in random.sample(rows, min(3, len(rows))):
            assert log.epochs.epoch_for_offset(row[0]) == row[4]
        reader = open_readers(self.disk, ROOT)[key]
        try:
            assert (reader.start_offset, reader.end_offset) == (model.start, model.high_watermark)
            wanted = max(random.choice(times), 0)
            first = next(((row[0], row[1]) for row in rows if row[1] >= wanted and row[0] < model.high_watermark), None)
            assert reader.find_timestamp(wanted) == first
        finally:
            reader.close()


@pytest.mark.parametrize("seed", range(16))
def test_a_root_is_what_its_model_says(seed: int) -> None:
    """Whatever happens to it, and whatever of its small files is lost between two lives."""
    life = Life(seed)
    try:
        for _ in range(STEPS):
            life.step()
        for key in list(life.models):
            life.close(key)
            life.check(key)
    except BaseException as error:
        error.add_note(f"seed {seed}, the last of {len(life.told)} steps: " + "; ".join(life.told[-8:]))
        raise
    life.root.close()

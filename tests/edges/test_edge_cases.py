"""The edge cases that Kafka's own tests check, by their number: ``pytest -k e064`` runs one, ``ELSEWHERE`` names the tests of the others.

The numbers are those of the list that this project was written to: varints and records 1-9, batches 10-23, files 24-34, indexes 35-53,
segments 54-65, appending and rolling 66-83, reading 84-90, truncation and recovery 91-104, retention, epochs and checkpoints 105-116.
110 and 111 are about compaction, which is not here; 75, about what a compacted topic takes, is that there is none.
"""

from __future__ import annotations

import ast
import errno
import struct
from pathlib import Path
from random import Random

import pyarrow
import pytest

import pyreplog
from pyreplog.config import LogConfig
from pyreplog.errors import ClosedError, ConfigError, CorruptError, InternalError, MessageTooLargeError, StorageError
from pyreplog.log import Log, LogRoot, open_readers, random_uuid
from pyreplog.log.isolation import CommittedSource
from pyreplog.log.layout import INDEX_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, TIME_INDEX_SUFFIX, parse_base_offset, segment_name
from pyreplog.log.segment import Segment
from pyreplog.log.snapshot import read_offsets
from pyreplog.record import BatchBuilder, RecordBatch, control_records, end_marker
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from tests.log.conftest import Place, place
from tests.log.support import CLOCK, batch, contents, create, raw, reopen, sync
from tests.log.test_producers import marker, produced
from tests.log.test_transactions import Live, Play, offsets_of

__all__ = ["place"]

INT32_MAX = 2**31 - 1

RECORD = "tests/record/"
LOG = "tests/log/"
ELSEWHERE: dict[int, tuple[str, ...]] = {
    1: (RECORD + "test_core_hostile.py::test_varlongs_read_exactly",),
    2: (RECORD + "test_core_hostile.py::test_varints_end", RECORD + "test_core_hostile.py::test_varlongs_end"),
    3: (RECORD + "test_core_hostile.py::test_nulls_are_not_empties",),
    6: (RECORD + "test_core_hostile.py::test_record_length_is_exact", RECORD + "test_core_hostile.py::test_never_reads_behind_the_end"),
    7: (RECORD + "test_core_hostile.py::test_record_length_is_exact",),
    8: (RECORD + "test_core_hostile.py::test_records_cut_anywhere",),
    10: (
        RECORD + "test_core_batch.py::test_declared_count",
        RECORD + "test_batch.py::test_a_leader_refuses_records_that_contradict_their_batch",
    ),
    11: (RECORD + "test_core_hostile.py::test_any_bit_flipped",),
    12: (RECORD + "test_core_batch.py::test_absurd_lengths",),
    13: (RECORD + "test_core_batch.py::test_stamp",),
    14: (RECORD + "test_batch.py::test_append_time_is_set_in_place", LOG + "test_log.py::test_append_time_replaces_timestamps"),
    15: (RECORD + "test_core_batch.py::test_sequences_wrap", LOG + "test_producers.py::test_sequence_wrap"),
    16: (RECORD + "test_core_batch.py::test_a5_empty",),
    17: (RECORD + "test_core_batch.py::test_a6_delete_horizon",),
    18: (RECORD + "test_core_builder.py::test_finish_arguments",),
    19: (RECORD + "test_core_builder.py::test_size_limit_is_exact", RECORD + "test_core_builder.py::test_gather_until_full"),
    20: (RECORD + "test_core_batch.py::test_offset_deltas",),
    21: (RECORD + "test_core_builder.py::test_finish_arguments",),
    23: (RECORD + "test_core_segment.py::test_offsets", RECORD + "test_core_batch.py::test_absurd_header_fields"),
    24: (RECORD + "test_core_segment.py::test_cut_anywhere",),
    25: (RECORD + "test_core_segment.py::test_zero_tail", RECORD + "test_core_batch.py::test_absurd_lengths"),
    26: ("tests/system/test_disk.py::test_reading_at_and_beyond_the_end", "tests/system/test_disk.py::test_negative_positions_are_refused"),
    27: (LOG + "test_log.py::test_a_slice_is_void_after_a_truncation",),
    31: (LOG + "test_retention.py::test_a_segment_reserves_its_room_and_gives_it_back",),
    33: (
        RECORD + "test_core_segment.py::test_searches_agree_with_a_walk",
        LOG + "test_log.py::test_reads_give_whole_batches_below_the_end",
    ),
    34: (RECORD + "test_core_batch.py::test_find_timestamp",),
    35: (RECORD + "test_core_index.py::test_empty",),
    36: (RECORD + "test_core_index.py::test_offsets_agree_with_the_twin",),
    37: (RECORD + "test_core_index.py::test_offset_order", LOG + "test_log.py::test_segments_roll_when_an_index_is_full"),
    38: (RECORD + "test_core_index.py::test_offset_limits",),
    39: (RECORD + "test_core_index.py::test_truncation_edges",),
    40: (RECORD + "test_core_index.py::test_offset_limits",),
    41: ("tests/system/test_disk.py::test_a_file_opened_for_reading_cannot_be_written",),
    44: (RECORD + "test_core_index.py::test_time_order",),
    47: (RECORD + "test_core_index.py::test_partial_entry_is_dropped", RECORD + "test_core_index.py::test_wrong_offset_entries"),
    48: (LOG + "test_transactions.py::test_index_file",),
    49: (LOG + "test_transactions.py::test_index_file",),
    50: (LOG + "test_transactions.py::test_any_interleaving",),
    51: (LOG + "test_transactions.py::test_index_file",),
    52: (LOG + "test_transactions.py::test_index_file",),
    53: (LOG + "test_transactions.py::test_index_file",),
    61: (
        LOG + "test_recovery.py::test_wrong_indexes_only_cost_time",
        LOG + "test_recovery.py::test_rot_below_the_mark_is_reported_and_not_cut",
    ),
    62: (LOG + "test_transactions.py::test_any_interleaving", LOG + "test_recovery.py::test_a_wrong_epoch_history_is_made_anew"),
    66: (LOG + "test_log.py::test_segments_roll_by_size",),
    67: (LOG + "test_log.py::test_segments_roll_by_message_time", LOG + "test_log.py::test_segments_without_timestamps_roll_by_the_clock"),
    68: (LOG + "test_retention.py::test_an_empty_append_never_rolls",),
    69: (LOG + "test_retention.py::test_an_empty_append_never_rolls",),
    70: (LOG + "test_retention.py::test_jitter_only_brings_a_roll_forward",),
    72: (LOG + "test_log.py::test_too_large_is_refused",),
    73: (LOG + "test_log.py::test_a_follower_refuses_what_does_not_follow",),
    74: ("tests/crash/test_found.py::test_offsets_with_gaps_of_the_leader_stay_readable",),
    76: (LOG + "test_retention.py::test_timestamps_out_of_bounds_are_refused",),
    77: (LOG + "test_producers.py::test_duplicate_of_the_last_five_batches",),
    78: (LOG + "test_producers.py::test_several_producers_in_one_append",),
    79: (LOG + "test_producers.py::test_epochs",),
    80: (LOG + "test_producers.py::test_unknown_producer",),
    82: (LOG + "test_log.py::test_a_write_error_poisons",),
    84: (LOG + "test_log.py::test_reads_outside_the_log_are_refused",),
    87: (LOG + "test_log.py::test_the_high_watermark_stays_within_the_log",),
    89: (LOG + "test_transactions.py::test_stability_waits_for_the_high_watermark",),
    90: (LOG + "test_transactions.py::test_an_aborted_transaction_across_segments",),
    91: (LOG + "test_log.py::test_a_truncation_at_the_end_drops_an_unused_epoch",),
    94: (
        LOG + "test_recovery.py::test_a_clean_marker_does_not_hide_a_torn_tail",
        LOG + "test_root.py::test_an_unclean_end_is_told_from_a_clean_one",
    ),
    96: (LOG + "test_recovery.py::test_a_torn_place_ends_the_log_in_the_middle",),
    98: (
        LOG + "test_recovery.py::test_unfinished_replacements_are_finished",
        LOG + "test_recovery.py::test_a_replacement_in_each_of_its_states",
        LOG + "test_recovery.py::test_power_loss_while_a_replacement_is_finished",
        LOG + "test_overflow.py::test_it_is_split_when_opened_for_writing",
        LOG + "test_overflow.py::test_no_end_loses_any_of_it",
        LOG + "test_overflow.py::test_no_refused_call_loses_any_of_it",
    ),
    99: (LOG + "test_recovery.py::test_a_checkpoint_behind_the_end_wipes_nothing",),
    100: (LOG + "test_producers.py::test_bad_snapshots_are_replaced", LOG + "test_producers.py::test_known_after_a_restart"),
    103: (LOG + "test_log.py::test_a_gap_too_wide_for_a_segment_begins_a_new_one",),
    105: (LOG + "test_retention.py::test_nothing_goes_at_or_above_the_high_watermark",),
    107: (LOG + "test_retention.py::test_a_passed_log_start_lets_the_next_ones_go_by_age",),
    108: (LOG + "test_retention.py::test_the_active_segment_goes_by_a_roll",),
    109: (LOG + "test_retention.py::test_by_size_the_oldest_go_down_to_the_limit",),
    112: (LOG + "test_epochs.py::test_it_agrees_with_its_slow_twin", LOG + "test_epochs.py::test_the_file_keeps_it"),
    114: (LOG + "test_layout.py::test_partition_folders", LOG + "test_layout.py::test_folders_that_are_none"),
    115: (LOG + "test_root.py::test_one_writer_at_a_time",),
    116: (LOG + "test_root.py::test_a_poisoned_log_leaves_no_marker",),
}
"""Where the test of a number is that is not in this file."""

NOT_HERE = {
    110: "the cleaner",
    111: "the cleaner",
}


def _functions(path: str) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(Path(path).read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_number_has_its_test() -> None:
    """Each number from 1 to 116 is tested here, or where the table says, or is about something that is not built; no two of these."""
    root = Path(__file__).parents[2]
    here = {int(name[6:9]) for name in _functions(__file__) if name.startswith("test_e") and name[6:9].isdigit()}
    assert not here & ELSEWHERE.keys()
    assert not (here | ELSEWHERE.keys()) & NOT_HERE.keys()
    assert here | ELSEWHERE.keys() | NOT_HERE.keys() == set(range(1, 117))
    known: dict[str, set[str]] = {}
    for tests in ELSEWHERE.values():
        for test in tests:
            path, _, name = test.partition("::")
            if path not in known:
                known[path] = _functions(str(root / path))
            assert name in known[path], test


# -- records and batches --


def varint(number: int) -> bytes:
    """Zig-zag."""
    value = number << 1 if number >= 0 else (-number << 1) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def with_records(payload: bytes, count: int = 1) -> RecordBatch:
    """A batch whose records are ``payload``, whatever it is."""
    header = struct.pack(">qiibIhiqqqhii", 0, 49 + len(payload), 0, 2, 0, 0, count - 1, 5, 5, -1, -1, -1, count)
    return RecordBatch(header + payload)


def record(body: bytes) -> bytes:
    """``body`` with its length."""
    return varint(len(body)) + body


def test_e004_a_header_has_a_key() -> None:
    """A null header key is refused when written, and a negative key length when read."""
    with pytest.raises(TypeError):
        BatchBuilder().append(b"v", b"k", [(None, b"x")], 1)  # type: ignore[list-item]
    fields = b"\x00\x00\x00" + varint(-1) + varint(1) + b"v" + varint(1)
    with pytest.raises(CorruptError, match="header key"):
        with_records(record(fields + varint(-1) + varint(-1))).check_records()


def test_e005_header_counts() -> None:
    """A header count that is negative, or larger than the bytes left, is refused before anything is allocated."""
    fields = b"\x00\x00\x00" + varint(-1) + varint(1) + b"v"
    for count in (-1, -(2**31), 2, 1000, INT32_MAX):
        with pytest.raises(CorruptError):
            with_records(record(fields + varint(count) + b"\x00")).check_records()


def test_e009_without_keys_and_values(place: Place) -> None:
    """A reader that skips keys and values gives the offsets and timestamps of one that does not."""
    if not isinstance(place.disk, SimDisk):
        with pyreplog.open_log(place.of("log"), durability="os") as log:
            for number in range(20):
                log.append_many([b"v%d" % number] * number, keys=[b"k"] * number, timestamps=[number * 3 % 7 + i for i in range(number)])
            table = pyarrow.table(log.scan(["offset", "timestamp"]))
            assert table.column("offset").to_pylist() == [one.offset for one in log.read()]
            assert table.column("timestamp").cast(pyarrow.int64()).to_pylist() == [one.timestamp for one in log.read()]


def control(key: bytes, value: bytes) -> RecordBatch:
    """A control batch of one record."""
    builder = BatchBuilder()
    assert builder.append(value, key, (), 5)
    return RecordBatch(builder.finish(producer_id=1, producer_epoch=0, transactional=True, control=True))


def test_e022_control_records() -> None:
    """An unknown type is UNKNOWN and ends nothing, a newer version is read as 0, a negative one is refused, and so are short keys and
    values."""
    (unknown,) = control_records(control(struct.pack(">hh", 0, 99), b""))
    assert (unknown.name, unknown.ends_transaction) == ("UNKNOWN", False)
    assert end_marker(control(struct.pack(">hh", 0, 99), b"")) is None
    assert end_marker(control(struct.pack(">hh", 0, 2), b"")) is None
    newer = end_marker(control(struct.pack(">hh", 7, 1), struct.pack(">hiq", 3, 12, 0)))
    assert newer is not None
    assert (newer.name, newer.coordinator_epoch) == ("COMMIT", 12)
    for key, value in (
        (struct.pack(">hh", -1, 1), struct.pack(">hi", 0, 1)),
        (struct.pack(">h", 0), b""),
        (b"", b""),
        (struct.pack(">hh", 0, 0), struct.pack(">h", 0)),
        (struct.pack(">hh", 0, 1), b""),
        (struct.pack(">hh", 0, 1), struct.pack(">hi", -1, 0)),
    ):
        with pytest.raises(CorruptError):
            control_records(control(key, value))


# -- files --


def test_e028_no_segment_beyond_int_max() -> None:
    """No segment may be told to grow beyond 2**31 - 1 bytes."""
    LogConfig(segment_bytes=INT32_MAX)
    with pytest.raises(ConfigError):
        LogConfig(segment_bytes=INT32_MAX + 1)


def test_e029_a_file_beyond_int_max(tmp_path: Path) -> None:
    """A log file longer than 2**31 - 1 bytes (here with a hole behind the batches) is read as far as it is good, and the rest told of."""
    from pyreplog.system.disk import SystemDisk  # noqa: PLC0415  (only here)

    disk = SystemDisk()
    log = create(disk, str(tmp_path / "t-0"))
    log.append_as_leader(batch(3), 0)
    log.set_high_watermark(3)
    log.write_mark()
    size = log.stats().size
    log.close(clean=False)
    path = tmp_path / "t-0" / segment_name(0, LOG_SUFFIX)
    with path.open("r+b") as file:
        file.truncate(INT32_MAX + 4096)
    (tmp_path / "t-0" / "replog.mark").unlink()
    ((_, reader),) = open_readers(disk, str(tmp_path / "t-0")).items()
    assert [one.next_offset for one in reader.batches(0, reader.end_offset)] == [3]
    assert reader.unreadable_size == INT32_MAX + 4096 - size
    reader.close()
    disk.close()


def test_e030_truncation_to_where_nothing_is(place: Place) -> None:
    """Cutting beyond the end, or at it, changes nothing; at a negative offset it is a bug."""
    log = create(place.disk, place.of("t-0"))
    log.append_as_leader(batch(3), 0)
    before = raw(log)
    for offset in (3, 4, 10**12):
        log.truncate_to(offset)
        assert (raw(log), log.end_offset) == (before, 3)
    with pytest.raises(InternalError):
        log.truncate_to(-1)
    log.close(clean=True)


def test_e032_reading_moves_no_end(place: Place) -> None:
    """However much is read between appends, each batch goes to the end."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    log.keep_tail(0)
    for number in range(20):
        assert log.append_as_leader(batch(2), 0).base_offset == 2 * number
        assert [one.offset for one in contents(log)] == list(range(2 * number + 2))
    log.close(clean=True)


# -- indexes --


def segments(log: Log) -> list[Segment]:
    """Of a log."""
    return list(log._segments)


def filled(place: Place, count: int = 40, **settings: int) -> Log:
    """A log of batches with 2 records each, in several segments, with an index entry for nearly each."""
    log = create(place.disk, place.of("t-0"), LogConfig(**{"segment_bytes": 1024, "index_interval_bytes": 0, **settings}))  # type: ignore[arg-type]
    for number in range(count):
        log.append_as_leader(batch(2, timestamp=1000 * number), 0)
    return log


def test_e042_upper_bounds(place: Place) -> None:
    """What bounds the search for aborted transactions is exact: at a transaction's first offset, one behind it, far behind."""
    log = create(place.disk, place.of("t-0"))
    play = Play(log)
    play.other()
    play.data(1)  # 1, 2
    play.end(1, commit=False)  # 3
    play.other()
    log.set_high_watermark(log.end_offset)
    assert [len(log.aborted_transactions(0, end)) for end in (1, 2, 3, 5)] == [0, 1, 1, 1]
    assert [len(log.aborted_transactions(start, 5)) for start in (0, 1, 3, 4)] == [1, 1, 1, 0]
    log.close(clean=True)


def test_e043_a_preallocated_index(place: Place) -> None:
    """An index file longer than its entries (zeros behind them) has the same entries, and is cut to them when it is closed."""
    log = filled(place)
    log.close(clean=True)
    last = max(base for name in place.disk.list(place.of("t-0")) if (base := parse_base_offset(name)) is not None)
    before = {}
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        name = f"t-0/{segment_name(last, suffix)}"
        before[name] = place.read(name)
        assert before[name]
        place.write(name, before[name] + bytes(240))
    log = reopen(place.disk, place.of("t-0"), clean=True)
    assert log.find_timestamp(38_500, log.end_offset) == (78, 39_000)
    assert log.append_as_leader(batch(1), 0).base_offset == 80
    log.truncate_to(80)
    log.close(clean=True)
    for name, content in before.items():
        assert place.read(name) == content


def test_e045_the_time_index_is_full_one_entry_early(place: Place) -> None:
    """With room for n time entries a segment is closed after n - 1, and the last one still fits."""
    log = filled(place, segment_bytes=1 << 20, segment_index_bytes=60)
    assert len(segments(log)) > 3
    for segment in segments(log)[:-1]:
        assert segment.indexes.times.count <= 5
        assert segment.indexes.offsets.count <= 4
    log.close(clean=True)


def test_e046_use_after_release(place: Place) -> None:
    """A segment whose files were closed opens them again when asked; a closed log says so."""
    log = filled(place)
    for segment in segments(log)[:-1]:
        segment.release()
        assert segment.position_of(segment.base_offset) == 0
    index = segments(log)[0].indexes.offsets
    log.close(clean=True)
    assert index.count
    with pytest.raises(ClosedError):
        log.read(0, 100, 80)


# -- segments --


def one_segment(place: Place, base: int, starts: list[int]) -> Segment:
    """A segment at ``base`` with a batch of 2 records at each of ``starts``."""
    segment = Segment.create(place.disk, place.path, base, index_interval=0, wall_ms=0)
    segment.limit_entries(1 << 20)
    for start in starts:
        data = batch(2, base_offset=start, leader_epoch=0, timestamp=start)
        segment.append((data,), data.nbytes, start + 1, start + 1)
    return segment


def test_e054_reads_of_a_segment(place: Place) -> None:
    """Nothing in an empty one; before the first offset the first batch; behind the last none; in a gap the next batch."""
    empty = one_segment(place, 0, [])
    assert empty.read(0, 1 << 20, 100) is None
    segment = one_segment(place, 40, [50, 60, 62])
    for offset, expected in ((40, 50), (50, 50), (51, 50), (52, 60), (59, 60), (61, 60), (62, 62)):
        data = segment.read(offset, 1, 1 << 40)
        assert data is not None
        assert RecordBatch(data).base_offset == expected
    assert segment.read(64, 1 << 20, 1 << 40) is None


def test_e055_no_room_to_read(place: Place) -> None:
    """An end at or below the offset reads nothing, and is no error."""
    log = filled(place)
    for offset, end in ((0, 0), (10, 10), (10, 4), (80, 80), (80, 0)):
        assert log.read(offset, 1 << 20, end).size == 0
    log.close(clean=True)


def test_e056_truncation_inside_a_gap(place: Place) -> None:
    """An offset in a gap cuts what lies behind the gap."""
    segment = one_segment(place, 40, [50, 60, 62])
    segment.truncate(55, 0)
    assert (segment.next_offset, segment.read(52, 1 << 20, 1 << 40)) == (52, None)


def test_e057_an_emptied_segment_is_new(place: Place) -> None:
    """A segment that was cut to nothing counts its age from then."""
    segment = one_segment(place, 40, [50])
    segment.truncate(40, 7777)
    assert (segment.created_ms, segment.size, segment.first_timestamp) == (7777, 0, -1)


def test_e058_truncation_to_nothing_and_on(place: Place) -> None:
    """Cut to nothing, the same offsets are appended again, and read, also after a restart."""
    log = filled(place, 3)
    log.truncate_to(0)
    assert log.end_offset == 0
    for number in range(3):
        log.append_as_leader(batch(2, tag=b"again", timestamp=1000 * number), 0)
    expected = [one.value for one in contents(log)]
    assert expected[0] is not None
    assert expected[0].startswith(b"again")
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    assert [one.value for one in contents(log)] == expected
    log.close(clean=True)


def test_e059_an_empty_segment_ends_where_it_begins(place: Place) -> None:
    """Its next offset is its base; so is that of a new log, also after a restart."""
    assert one_segment(place, 345, []).end_offset() == 345
    log = create(place.disk, place.of("t-0"), start_offset=345)
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    assert (log.start_offset, log.end_offset) == (345, 345)
    log.close(clean=True)


def test_e060_all_files_of_a_segment_go(place: Place) -> None:
    """A removed segment takes its log, both indexes, transaction index and snapshot along."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    play = Play(log)
    while len(segments(log)) < 4:
        play.data(1, 4)
        play.end(1, commit=False)
    log.set_high_watermark(log.end_offset)
    second = segments(log)[1].base_offset
    names = {segment_name(second, suffix) for suffix in SEGMENT_SUFFIXES}
    assert names <= set(place.disk.list(place.of("t-0")))
    log.increment_start_offset(segments(log)[2].base_offset)
    assert log.apply_retention(confirmed=True) == 2
    assert not names & set(place.disk.list(place.of("t-0")))
    log.close(clean=True)


def test_e063_the_greatest_timestamp_after_a_cut(place: Place) -> None:
    """After a truncation a segment's greatest timestamp is that of what is left."""
    segment = one_segment(place, 0, [0])
    for start, timestamp in ((2, 900), (4, 100)):
        data = batch(2, base_offset=start, leader_epoch=0, timestamp=timestamp)
        segment.append((data,), data.nbytes, start + 1, timestamp + 1)
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (901, 3)
    segment.truncate(4, 0)
    assert segment.max_timestamp == 901
    segment.truncate(2, 0)
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (1, 1)


def test_e064_batches_too_far_apart_for_one_segment(place: Place) -> None:
    """Fetched batches that no segment could hold together are put into two, or refused as a whole; the log opens again."""
    log = create(place.disk, place.of("t-0"))
    far = INT32_MAX + 10
    log.append_as_follower([batch(2, base_offset=0, leader_epoch=0), batch(2, base_offset=far, leader_epoch=0)])
    assert log.end_offset == far + 2
    assert [one.offset for one in contents(log)] == [0, 1, far, far + 1]
    sync(place.disk, log)
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    assert [one.offset for one in contents(log)] == [0, 1, far, far + 1]
    log.close(clean=True)


def test_e065_removing_what_is_gone(place: Place) -> None:
    """A segment some of whose files somebody removed is removed without an error."""
    log = filled(place)
    for segment in segments(log)[:-1]:
        segment.release()
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            place.disk.remove(place.of(f"t-0/{segment_name(segment.base_offset, suffix)}"))
    log.truncate_fully(500)
    assert (log.start_offset, log.end_offset) == (500, 500)
    log.close(clean=True)


# -- appending --


def test_e071_a_follower_takes_what_its_leader_took(place: Place) -> None:
    """A batch above max.message.bytes or segment.bytes is refused by a leader and taken by a follower, whose settings may be behind."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024, max_message_bytes=500))
    large = batch(20, size=100)
    with pytest.raises(MessageTooLargeError):
        log.append_as_leader(large, 0)
    data = batch(20, size=100, base_offset=0, leader_epoch=0)
    assert data.nbytes > 1024
    assert log.append_as_follower([data]) == 20
    assert log.append_as_follower([batch(20, size=100, base_offset=20, leader_epoch=0)]) == 40
    assert len(contents(log)) == 40
    log.close(clean=True)


def test_e075_nothing_is_compacted(tmp_path: Path) -> None:
    """No topic can be told to be compacted, so that a record without a key never gets into one."""
    for policy in ("compact", "compact,delete"):
        with pytest.raises(ConfigError, match=r"cleanup\.policy"):
            pyreplog.open_log(tmp_path / "log", config={"cleanup.policy": policy})
    assert not (tmp_path / "log").exists()
    with pyreplog.open_log(tmp_path / "log") as log:
        log.append(b"kept", key=b"k")
        log.append(None, key=b"k")
        log.append(b"without a key")
        assert [(record.key, record.value) for record in log] == [(b"k", b"kept"), (b"k", None), (None, b"without a key")]


def test_e081_a_failing_transaction_index(place: Place) -> None:
    """When the entry of an aborted transaction finds no room, its marker's offset is not given out again, and the entry follows."""
    if not isinstance(place.disk, SimDisk):
        return
    log = create(place.disk, place.of("t-0"))
    play = Play(log)
    play.data(1)
    place.disk.fail("write", "*.txnindex", error=errno.ENOSPC)
    with pytest.raises(StorageError):
        log.append_as_follower([marker(commit=False, producer=1, base=2)])
    assert log.end_offset == 3
    assert len(log.aborted_transactions(0, 3)) == 1
    place.disk.clear_faults()
    play.data(2)
    play.end(2, commit=False)
    assert [entry.first_offset for entry in log.aborted_transactions(0, log.end_offset)] == [0, 3]
    log.set_high_watermark(log.end_offset)
    log.close(clean=True)
    assert len(place.read(f"t-0/{segment_name(0, '.txnindex')}")) == 68
    log = reopen(place.disk, place.of("t-0"), clean=True)
    assert [entry.first_offset for entry in log.aborted_transactions(0, log.end_offset)] == [0, 3]
    log.close(clean=True)


def test_e083_the_topic_id_comes_first(place: Place) -> None:
    """``partition.metadata`` is there before anything is appended, and another id is refused."""
    log = create(place.disk, place.of("t-0"))
    assert f"topic_id: {log.topic_id}".encode() in place.read("t-0/partition.metadata")
    log.close(clean=True)
    with pytest.raises(ConfigError):
        Log.open(
            place.disk,
            place.of("t-0"),
            topic="t",
            partition=0,
            config=None,
            clock=CLOCK,
            clean=True,
            same_boot=True,
            topic_id="AAAAAAAAAAAAAAAAAAAAAQ",
        )


# -- reading --


def test_e085_how_much_is_read(place: Place) -> None:
    """Whatever is asked for, 0 and 1 byte too, whole batches come, at least one; a batch is never cut (Kafka's may be)."""
    log = filled(place)
    log.keep_tail(0)
    size = batch(2).nbytes
    for asked, expected in ((0, 1), (1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2)):
        found = log.read(0, asked, log.end_offset)
        assert found.size == expected * size
    log.close(clean=True)


def test_e086_each_isolation_is_bounded(place: Place) -> None:
    """Wherever the high watermark stands, a reader gets exactly what is below it, and a committed one exactly what is stable below it."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    play = Play(log)
    for number in range(30):
        if number % 5 == 4:
            play.end(number % 2 + 1, commit=number % 10 == 4)
        elif number % 5 == 3:
            play.other()
        else:
            play.data(number % 2 + 1)
    source = Live(log)
    everything = [one.offset for one in contents(log)]
    for mark in range(log.end_offset + 1):
        log.high_watermark = mark
        # A batch that reaches above the mark is not there yet.
        bases = [one for one in everything if one < mark]
        got = [one.offset for one in contents(log, 0, mark)]
        assert got == bases[: len(got)]
        assert len(bases) - len(got) < 2
        committed = offsets_of(CommittedSource(source))
        assert committed == [one for one in committed if one < source.last_stable_offset <= mark]
        assert not set(committed) & set(play.aborted)
    log.close(clean=True)


def test_e088_reading_up_to_a_mark_in_a_new_segment(place: Place) -> None:
    """A high watermark that stands where a segment was just begun bounds reads exactly."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    log.keep_tail(0)
    while len(segments(log)) < 3:
        log.append_as_leader(batch(2), 0)
    log.set_high_watermark(segments(log)[-1].base_offset)
    assert [one.offset for one in contents(log, 0, log.high_watermark)] == list(range(log.high_watermark))
    assert log.read(log.high_watermark, 100, log.high_watermark).size == 0
    log.close(clean=True)


# -- truncation, loading, recovery --


def test_e092_truncation_below_the_first_segment(place: Place) -> None:
    """It empties the log, which then begins at that very offset."""
    log = create(place.disk, place.of("t-0"), start_offset=100)
    log.append_as_leader(batch(3), 0)
    log.truncate_to(50)
    assert (log.start_offset, log.end_offset, log.high_watermark) == (50, 50, 50)
    assert log.append_as_leader(batch(3), 0).base_offset == 50
    log.close(clean=True)


def test_e093_an_index_goes_on_after_a_cut(place: Place) -> None:
    """A segment that was closed and is written again after a truncation has room for entries, and gets them."""
    log = filled(place)
    log.truncate_to(7)
    segment = segments(log)[-1]
    before = segment.indexes.offsets.count
    assert segment.entries_left > 1000
    for _ in range(3):
        log.append_as_leader(batch(2), 0)
    assert segment.indexes.offsets.count == before + 3
    log.close(clean=True)


def test_e095_only_what_may_be_lost_is_scanned(place: Place) -> None:
    """After a kill, segments below the one that holds the durable mark are not read."""
    log = filled(place)
    sync(place.disk, log)
    total = log.stats().size
    last = segments(log)[-1].size
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    assert 0 < log.recovery.scanned_size <= last
    log.close(clean=False)
    for name in place.disk.list(place.of("t-0")):
        if name == "replog.mark":
            place.disk.remove(place.of(f"t-0/{name}"))
    log = reopen(place.disk, place.of("t-0"))
    assert log.recovery.scanned_size >= total
    log.close(clean=True)


@pytest.mark.parametrize("clean", [True, False])
def test_e097_orphans_and_missing_indexes(place: Place, clean: bool) -> None:
    """An index whose log is not there is removed; one that is missing is made anew."""
    log = filled(place)
    bases = [segment.base_offset for segment in segments(log)]
    log.close(clean=clean)
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, ".txnindex"):
        place.write(f"t-0/{segment_name(77777, suffix)}", b"")
    for base in bases:
        place.disk.remove(place.of(f"t-0/{segment_name(base, INDEX_SUFFIX)}"))
    log = reopen(place.disk, place.of("t-0"), clean=clean)
    assert not [name for name in place.disk.list(place.of("t-0")) if "77777" in name]
    log.keep_tail(0)
    for offset in range(80):
        assert contents(log, offset, log.end_offset)[0].offset == offset
    log.close(clean=True)


def recovery_points(disk: SimDisk) -> dict[TopicPartition, int]:
    """What the checkpoint of the root says."""
    return read_offsets(disk, "r/recovery-point-offset-checkpoint")


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("kind", ["create", "write", "rename"])
def test_e101_a_snapshot_that_cannot_be_written(kind: str, error: int) -> None:
    """The log goes on, and what is acknowledged stays; but no checkpoint calls it recovered beyond the last snapshot, and its root was not
    left in order: whoever believed that would begin without its producers. The next snapshot that is there ends it."""
    key = TopicPartition("t", 0)
    disk = SimDisk(Random(1))
    root = LogRoot.open(disk, "r", clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, random_uuid(Random(7)), LogConfig(segment_bytes=1024))
    log.become_leader(0)
    for number in range(15):
        log.append_as_leader(produced(2 * number, 2), 0)
    sync(disk, log)
    root.checkpoint_recovery_points()
    assert recovery_points(disk) == {key: 30}
    first = log.segments()[-1][0]
    fault = disk.fail(kind, "*.snapshot*", error=error, times=None)
    for number in range(15, 40):
        log.append_as_leader(produced(2 * number, 2), 0)
    sync(disk, log)
    root.checkpoint_recovery_points()
    assert 0 < first < 30
    assert recovery_points(disk) == {key: first}
    root.close()
    assert (log.end_offset, log.flushed_offset) == (80, 80)
    assert fault.hits > 2
    assert recovery_points(disk) == {key: first}
    assert disk.stat("r/.kafka_cleanshutdown") is None
    disk.clear_faults()
    root = LogRoot.open(disk.crash(Random(2)), "r", clock=CLOCK, random=Random(2))
    log = root.logs[key]
    assert (log.end_offset, log.flushed_offset) == (80, 80)
    assert log.append_as_leader(produced(78, 2), 0).duplicate
    assert isinstance(root.disk, SimDisk)
    root.close()
    assert recovery_points(root.disk) == {key: 80}
    assert root.disk.stat("r/.kafka_cleanshutdown") is not None


@pytest.mark.parametrize("when", ["at a roll", "at the end"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_e101_a_snapshot_whose_sync_fails(when: str, error: int) -> None:
    """As any sync that fails: the log is poisoned, nothing is tried again. No checkpoint calls it recovered beyond the last snapshot, its
    root was not left in order, and what was acknowledged is there, with who wrote it."""
    key = TopicPartition("t", 0)
    disk = SimDisk(Random(1))
    root = LogRoot.open(disk, "r", clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, random_uuid(Random(7)), LogConfig(segment_bytes=1024))
    log.become_leader(0)
    for number in range(30):
        log.append_as_leader(produced(2 * number, 2), 0)
        sync(disk, log)
    fault = disk.fail("sync", "*.snapshot*", error=error, times=None)
    end = 60
    if when == "at a roll":
        with pytest.raises(StorageError) as caught:
            for _ in range(30):
                log.append_as_leader(produced(end, 2), 0)
                sync(disk, log)
                end += 2
        assert caught.value.errno == error
        assert log.poisoned
        root.checkpoint_recovery_points()
        assert recovery_points(disk) == {key: log.segments()[-1][0]}
        root.close()
    else:
        with pytest.raises(StorageError):
            root.close()
        assert log.poisoned
    assert log.flushed_offset == end
    assert fault.hits == 1
    assert recovery_points(disk).get(key, 0) < end
    assert disk.stat("r/.kafka_cleanshutdown") is None
    disk.clear_faults()
    root = LogRoot.open(disk.crash(Random(2)), "r", clock=CLOCK, random=Random(2))
    log = root.logs[key]
    assert (log.end_offset, log.flushed_offset) == (end, end)
    assert log.append_as_leader(produced(end - 2, 2), 0).duplicate
    root.close()


def test_e101_a_log_without_producers() -> None:
    """Nobody is forgotten where nobody wrote with an id: without a snapshot, too, the log was left in order."""
    disk = SimDisk(Random(1))
    root = LogRoot.open(disk, "r", clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, random_uuid(Random(7)), LogConfig(segment_bytes=1024))
    log.become_leader(0)
    fault = disk.fail("write", "*.snapshot*", error=errno.ENOSPC, times=None)
    for number in range(30):
        log.append_as_leader(batch(2, timestamp=number), 0)
    root.close()
    assert fault.hits > 2
    assert recovery_points(disk) == {TopicPartition("t", 0): 60}
    assert disk.stat("r/.kafka_cleanshutdown") is not None


def test_e102_reopened_then_cut(place: Place) -> None:
    """A log that was just opened is cut like any other, at any offset."""
    for offset in (0, 1, 33, 40, 79):
        directory = place.of(f"{offset}-0")
        log = create(place.disk, directory, LogConfig(segment_bytes=1024))
        for number in range(40):
            log.append_as_leader(batch(2, timestamp=number), 0)
        sync(place.disk, log)
        log.close(clean=offset % 2 == 0)
        log = reopen(place.disk, directory, clean=offset % 2 == 0)
        log.truncate_to(offset)
        assert log.end_offset == offset // 2 * 2
        log.close(clean=False)
        log = reopen(place.disk, directory)
        assert [one.offset for one in contents(log)] == list(range(offset // 2 * 2))
        log.close(clean=True)


def test_e104_a_folder_without_segments(place: Place) -> None:
    """A new partition whose segment files are gone opens as the empty log that it was; readers see nothing in it."""
    log = create(place.disk, place.of("t-0"))
    log.close(clean=True)
    for suffix in SEGMENT_SUFFIXES:
        path = place.of(f"t-0/{segment_name(0, suffix)}")
        if place.disk.stat(path) is not None:
            place.disk.remove(path)
    for reader in open_readers(place.disk, place.of("t-0")).values():
        assert (reader.start_offset, reader.end_offset) == (0, 0)
        reader.close()
    log = reopen(place.disk, place.of("t-0"), clean=True)
    assert log.append_as_leader(batch(1), 0).base_offset == 0
    log.close(clean=True)


# -- retention, checkpoints --


def test_e106_a_second_run_does_nothing(place: Place) -> None:
    """Retention run again at once removes nothing more."""
    log = filled(place, retention_bytes=2048)
    log.set_high_watermark(log.end_offset)
    assert log.apply_retention(confirmed=True) > 0
    assert log.apply_retention(confirmed=True) == 0
    log.close(clean=True)


def test_e113_checkpoints(place: Place) -> None:
    """A checkpoint whose folder is gone cannot be written, and says so; see test_snapshot.py for what is read."""
    from pyreplog.log.snapshot import parse_offsets, write_offsets  # noqa: PLC0415  (only here)

    with pytest.raises(StorageError):
        write_offsets(place.disk, place.of("gone/recovery-point-offset-checkpoint"), {})
    assert parse_offsets(b"", "x") == {}
    many = b"0\n1000\n" + b"".join(b"t %d %d\n" % (number, number) for number in range(1000))
    assert len(parse_offsets(many, "x")) == 1000
    for bad in (b"1\n0\n", b"0\n1\n", b"0\nx\n", b"0\n1\nt 0\n", b"0\n1\nt 0 x\n"):
        with pytest.raises(CorruptError):
            parse_offsets(bad, "x")

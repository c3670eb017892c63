"""One target per parser: what it is fed first, how mutated input is made plausible, what it may raise, and what
must hold of its answer."""

from __future__ import annotations

import contextlib
import json
from contextlib import suppress
from io import BytesIO
from random import Random
from typing import Any, Final, cast

from pyreplog._core import (
    BatchCleaner,
    BatchWalk,
    ColumnsBuilder,
    KeyMap,
    OffsetIndex,
    RecordBatch,
    SegmentScanner,
    TimeIndex,
    TimeSearch,
    crc32c,
    find_gaps,
    find_offset,
    find_producers,
    find_timestamp,
    whole_batches,
)
from pyreplog.cli.resuming import ImportedUpTo, format_places, parse_places
from pyreplog.cli.rows import Fields, Lines, RowError, Style, read_rows
from pyreplog.config import LogConfig
from pyreplog.controller.state import decode
from pyreplog.errors import ConfigError, CorruptError, InvalidRequestError, InvalidTimestampError, ProtocolError
from pyreplog.log.clean_shutdown import read_farewell
from pyreplog.log.epochs import EpochCache
from pyreplog.log.gaps import Gaps, format_gaps, parse_gaps
from pyreplog.log.identity import decode_uuid, parse_properties
from pyreplog.log.layout import CLEAN_SHUTDOWN_NAME
from pyreplog.log.mark import MarkState, parse_mark
from pyreplog.log.node_list import format_nodes, parse_nodes
from pyreplog.log.producer_snapshot import parse_producers
from pyreplog.log.snapshot import format_state, parse_offsets, parse_state
from pyreplog.log.transaction_index import parse_aborted
from pyreplog.readers import OffsetEntry, offsets_file
from pyreplog.record import compress, recompress, records_of, set_append_time, split, validate_from_client
from pyreplog.record.compression import decompress_payload
from pyreplog.record.legacy import convert_legacy, legacy_batches, shallow_messages
from pyreplog.testing.disk import SimDisk
from pyreplog.verify import Broken, node_list, resume, small_file, states, walk
from pyreplog.verify.gaps import dropped_tombstone, recorded_gaps
from pyreplog.verify.readers import ReaderEntry, reader_file
from pyreplog.verify.states import Unreadable
from pyreplog.wire.binary import Reader, Writer
from pyreplog.wire.codec import decode_value, encode_value
from pyreplog.wire.control_records import decode_control_record, encode_control_record
from pyreplog.wire.layouts import CLASSES
from pyreplog.wire.metadata import BrokerEndpoint, PartitionRecord, RegisterBrokerRecord, SuspectReplica
from pyreplog.wire.metadata_codec import decode_record, describe_record, encode_record
from pyreplog.wire.metadata_layouts import RECORD_KINDS
from tests.faults.fuzz.mutate import seal_batch, seal_mark, seal_old, seal_reader_file, seal_snapshot, seal_state
from tests.faults.fuzz.queue_targets import QUEUES
from tests.faults.fuzz.quorum_targets import QUORUM
from tests.faults.fuzz.regression_corpus import KEPT
from tests.faults.fuzz.table_targets import TABLES
from tests.faults.fuzz.target import Target
from tests.faults.fuzz.twins import TWINS, old_segments, window
from tests.interop.golden.units import unit
from tests.unit.log.support import batch
from tests.unit.record.guarded import GuardedMemory

SIZE_MAX: Final = 1 << 20
_MEMORY: Final = GuardedMemory()


def _reader_files() -> list[bytes]:
    entries = [
        OffsetEntry(kind, topic_id, 2, 9, 1, 1, 5, 7) for kind in (1, 2) for topic_id in ("", "AbCdEfGhIjKlMnOpQrStUw")
    ]
    head = offsets_file.format_header("billing").ljust(offsets_file.HEADER_SIZE, b"\0")
    return [head, head + b"".join(map(offsets_file.format_entry, entries)), bytes(600)]


def _run_reader_file(data: bytes) -> object:
    """The library and the verifier find the same entries."""
    try:
        checked = [entry for _, entry in reader_file(data).entries if isinstance(entry, ReaderEntry)]
    except Unreadable:
        checked = None
    parsed = offsets_file.parse_offsets_file(data, "x")
    if checked is not None:
        assert [(one.topic_id, one.partition, one.offset, one.leader_epoch) for one in parsed.entries] == [
            (one.topic_id, one.partition, one.offset, one.leader_epoch) for one in checked
        ]
    for at in range(offsets_file.HEADER_SIZE, len(data), offsets_file.ENTRY_SIZE):
        offsets_file.parse_entry(data[at : at + offsets_file.ENTRY_SIZE])
    return (parsed.name is None, min(len(parsed.entries), 4), min(parsed.damaged_count, 2), checked is None)


def _edge(data: bytes) -> memoryview | bytes:
    """``data`` at the end of readable memory, so that one byte read behind it is a crash, whatever build this
    is."""
    return _MEMORY.place(data) if len(data) <= _MEMORY.capacity else data


def _batches() -> list[bytes]:
    found = [bytes(batch(count, codec=codec, base_offset=7, leader_epoch=3)) for codec in range(5) for count in (1, 3)]
    for name in ("plain-0", "txn-0", "compact-basic-0", "time-unordered-0", "mixed-codecs-0"):
        for path in sorted((unit("clean-4.1.0") / "data" / name).glob("*.log"))[:3]:
            found += [bytes(one.data) for one in split(path.read_bytes()) if one.size < 1000][:4]
    return found


def _run_batch(data: bytes) -> object:
    one = RecordBatch(_edge(data))
    one.check_crc()
    one.check_records(None if one.codec == 0 else decompress_payload(one.codec, one.payload, SIZE_MAX))
    payload = one.payload if one.codec == 0 else decompress_payload(one.codec, one.payload, SIZE_MAX)
    for cut in (len(payload) // 3, len(payload)):  # in two parts, as a large one comes
        size, count, last = one.whole_records(payload[:cut], one.record_count, -1, last=False)
        rest = one.whole_records(payload[size:], one.record_count - count, last, last=True)
        assert (size + rest[0], count + rest[1]) == (len(payload), one.record_count)
    records = records_of(one, "t", 0, 0, 2**63 - 1)
    total = 0
    for record in records:
        total += len(record.key or b"") + len(record.value or b"") + len(record.headers) + (record.timestamp & 1)
    # Control records are not given out, and nothing else is left out.
    assert one.is_control or len(records) == one.record_count
    one.is_dense(None if one.codec == 0 else decompress_payload(one.codec, one.payload, SIZE_MAX))
    return (one.codec, one.is_control, min(one.record_count, 4), one.is_transactional, total > 64)


def _segments() -> list[bytes]:
    singles = _batches()
    return [b"".join(singles[start : start + 3]) for start in range(0, len(singles) - 3, 3)] + singles[:6]


def _run_segment(given: bytes) -> object:
    data = _edge(given)
    scan = SegmentScanner(0, index_interval=100)
    taken = scan.feed(data)
    assert 0 <= taken <= len(data)
    offsets, times = OffsetIndex(0, scan.offset_entries()), TimeIndex(0, scan.time_entries())
    words: list[object] = [
        scan.status,
        min(scan.batch_count, 4),
        offsets.count > 0,
        times.count > 1,
        len(scan.epochs) > 1,
    ]
    for search in (
        lambda: find_offset(data, 8),
        lambda: find_timestamp(data, 1001),
        lambda: find_producers(data, True),
    ):
        try:
            words.append(type(search()).__name__)
        except CorruptError as error:
            words.append(error.reason)
    try:
        whole = whole_batches(data, 2**62, len(data))
        assert 0 <= whole <= len(data)
        builder = ColumnsBuilder(["offset", "key", "value", "headers", "timestamp"])
        builder.extend(data)
        words.append(builder.row_count > 3)
    except (CorruptError, OverflowError) as error:
        words.append(str(error)[:30])
    return tuple(words)


def _clients() -> list[bytes]:
    return [bytes(batch(count, codec=codec)) for codec in range(5) for count in (1, 3)]


def _run_client(data: bytes) -> object:
    """What a leader does with a client's batch: it is checked, stored in the topic's codec, and bears the log's
    time."""
    one = RecordBatch(_edge(data))
    validate_from_client(one)
    count = one.record_count
    for codec in (0, 4):
        stored = memoryview(recompress(one, codec))
        set_append_time(stored, 77)
        again = RecordBatch(stored)
        again.check_crc()
        assert [record.timestamp for record in records_of(again, "t", 0, 0, 2**63 - 1)] == [77] * count
    return (one.codec, min(count, 4))


_TIMED: Final = b"".join(
    bytes(batch(1, base_offset=number, timestamp=1000 + 10 * number, size=30)) for number in range(40)
)


def _run_search(given: bytes) -> object:
    """A search by time in a segment that is not what its indexes say, each piece of it at the end of readable
    memory."""
    scan = SegmentScanner(0, index_interval=300)
    scan.feed(_TIMED)
    times, offsets = TimeIndex(0, scan.time_entries()), OffsetIndex(0, scan.offset_entries())
    words = []
    for timestamp in (1000, 1195, 1391):
        search = TimeSearch(times, offsets, timestamp, 0, 40, len(given))
        search.expect(-1, 2**62)
        found = search.run(lambda position, size: _edge(given[position : position + size]))
        words.append(None if found is None else found[0] > 20)
        assert found is None or found[1] >= timestamp
    return tuple(words)


def _run_old(data: bytes) -> object:
    messages, size = shallow_messages(memoryview(data))
    assert 0 <= size <= len(data)
    count = 0
    for one in legacy_batches(convert_legacy(memoryview(data))):
        count += len(records_of(one, "t", 0, 0, 2**63 - 1))
    return (min(len(messages), 4), min(count, 6), messages[0].codec if messages else -1)


def _indexes() -> list[bytes]:
    found = [b"", bytes(12)]
    for path in sorted((unit("clean-4.1.0") / "data" / "many-batches-1-0").glob("*index"))[:4]:
        found.append(path.read_bytes()[:480])
    return found


def _run_indexes(data: bytes) -> object:
    words = []
    for kind in (OffsetIndex, TimeIndex):
        try:
            index = kind(0, _edge(data))
        except CorruptError as error:
            words.append(error.reason)
            continue
        for key in (0, 5, 2**31, 2**62):
            index.lookup(key)
        before = index.count
        index.truncate(5)
        assert index.count <= before
        words.append(str(min(index.count, 4)))
    return tuple(words)


def _run_checkpoint(data: bytes) -> object:
    words: list[object] = []
    try:
        words.append(min(len(parse_offsets(data, "x")), 3))
    except CorruptError as error:
        words.append(error.reason.rstrip("0123456789")[:20])
    try:
        epochs = EpochCache.parse(data)
        assert EpochCache.parse(epochs.format()) == epochs
        epochs.end_offset_for(3, 100)
        epochs.epoch_for_offset(5)
        words.append(min(len(epochs), 3))
    except CorruptError as error:
        words.append(error.reason.rstrip("0123456789")[:20])
    return tuple(words)


def _marks() -> list[bytes]:
    from tests.faults.flips.golden import ROOT, golden  # noqa: PLC0415  (made when asked for)

    return [golden(name).disk.open(f"{ROOT}/t-0/replog.mark").read_at(0, 2000).tobytes() for name in ("own", "open")]


def _run_mark(data: bytes) -> object:
    found = parse_mark(data)
    assert found is None or isinstance(found[0], MarkState)
    return None if found is None else (found[1], found[0].durability, found[0].may_have_gaps, found[0].synced_end < 0)


def _run_settings(data: bytes) -> object:
    values = parse_state(data, "x")
    values.pop("version", None)
    config = LogConfig.from_mapping(values)
    assert LogConfig.from_mapping({"durability": config.durability, **config.to_mapping()}) == config
    return config.durability


def _run_place(data: bytes) -> object:
    with contextlib.suppress(states.Unreadable):
        states.imports(data)
    places = parse_places(parse_state(data, "x"), "x")
    again = format_state(format_places(places))
    assert parse_places(parse_state(again, "x"), "x") == places
    assert len(states.imports(again)) == len(places)
    assert all(min(place.partition, place.size, place.rows, place.offset) >= 0 for place in places)
    return (min(len(places), 4), sum(place.done for place in places))


def _run_nodes(data: bytes) -> object:
    folders, cluster = parse_nodes(parse_state(data, "x"), "x")
    assert node_list(data) == (folders, cluster)  # verify takes what the reader takes
    again = format_state(format_nodes(folders, cluster))
    assert parse_nodes(parse_state(again, "x"), "x") == (folders, cluster)
    return (min(len(folders), 4), bool(cluster))


def _run_identity(data: bytes) -> object:
    values = parse_properties(data)
    word = "no id"
    for text in values.values():
        try:
            decode_uuid(text)
            word = "id"
        except ValueError:
            continue
    return (min(len(values), 4), word)


def _snapshots() -> list[bytes]:
    return [path.read_bytes() for path in sorted((unit("clean-4.1.0") / "data" / "txn-0").glob("*.snapshot"))[-3:]] + [
        bytes(10)
    ]


def _cleaned_batches() -> list[bytes]:
    one = bytes(batch(5, base_offset=3))
    return [one, one + bytes(batch(5, base_offset=20)), bytes(batch(1, codec=1)), one[:80]]


def _run_cleaner(data: bytes) -> tuple[int, int]:
    """The map of keys and the copy of a pass: the copy is whole batches, whose gaps are found."""
    keys = KeyMap(24 * 8, bytes(16))
    why = keys.note(BatchWalk(0), data, 2)
    cleaner = BatchCleaner(keys, keys.latest + 1, keys.latest + 1, 5000, True, len(data) + 64, 2**62)
    copied = cleaner.clean(BatchWalk(0), data)
    left = cleaner.take()
    for one in split(left):
        one.check_crc()
        one.check_records()
    find_gaps(left, 0)
    assert cleaner.records_kept <= cleaner.records_read
    return why, copied


def _gaps() -> list[bytes]:
    blocks = [format_gaps(0, Gaps(bounds)) for bounds in ((), (0, 5), (5, 7, 9, 2**33), range(0, 40, 2))]
    return [*blocks, b"".join(blocks[:3])]


def _seal_gaps(data: bytes, _: Random) -> bytes:
    """With the right checksum."""
    return data[:-4] + crc32c(data[:-4]).to_bytes(4, "big")


def _run_gaps(data: bytes) -> int:
    """The library and the independent checker read the same, or both refuse it."""
    try:
        theirs = recorded_gaps(data, 0, torn=True)
    except states.Unreadable:
        theirs = None
    if theirs is None:
        try:
            parse_gaps(data, 0)
        except CorruptError:
            return 0
        raise AssertionError("only the checker refuses it")
    ours = parse_gaps(data, 0)
    bounds = list(ours.bounds)
    assert dict(zip(bounds[::2], bounds[1::2], strict=True)) == theirs
    assert bounds == sorted(set(bounds))
    with suppress(states.Unreadable):
        recorded_gaps(data, 0)  # whole
        assert dropped_tombstone(data) == ours.dropped_tombstone
    for start, end in list(theirs.items())[:20]:
        assert ours.behind(start) == end == ours.behind(end - 1)
        assert ours.behind(end) == end
    return min(len(theirs), 7)


def _aborted() -> list[bytes]:
    return [path.read_bytes() for path in sorted((unit("clean-4.1.0") / "data" / "txn-0").glob("*.txnindex"))]


def _packed() -> list[bytes]:
    texts = (b"", b"a", b"abc" * 50, bytes(range(256)))
    return [bytes([codec - 1]) + compress(codec, text) for codec in (1, 2, 3, 4) for text in texts]


def _run_packed(data: bytes) -> object:
    if not data:
        return None
    codec = 1 + data[0] % 4
    plain = decompress_payload(codec, memoryview(data)[1:], SIZE_MAX)
    assert len(plain) <= SIZE_MAX
    return (codec, min(len(plain), 3), len(plain) > 300)


_KINDS: Final = sorted(CLASSES)


def _messages() -> list[bytes]:
    found = [bytes([number, *bytes(40)]) for number in range(len(_KINDS))]
    for number, name in enumerate(_KINDS):
        out = Writer()
        try:
            encode_value(out, CLASSES[name]())
        except TypeError:
            continue  # it has fields without a default
        except ProtocolError:
            continue
        found.append(bytes([number]) + b"".join(bytes(memoryview(part)) for part in out.parts()))
    return found


def _run_message(data: bytes) -> object:
    if not data:
        return None
    name = _KINDS[data[0] % len(_KINDS)]
    value = decode_value(Reader(data, 1), CLASSES[name])
    out = Writer()
    encode_value(out, value)
    return name


def _metadata() -> list[bytes]:
    """A record of each kind and version, nearly empty, and control records behind a zero."""
    frames = [(key, version) for key, kind in RECORD_KINDS.items() for version in range(kind.newest + 1)]
    return [
        *(bytes([1, key, version, *bytes(60)]) for key, version in frames),
        *(bytes([0, number, 0, 0, *bytes(30)]) for number in range(8)),
        encode_record(PartitionRecord(0, "A" * 22, [1, 2], [1], suspects=[SuspectReplica(1, 2, 3)])),
        encode_record(RegisterBrokerRecord(1, "A" * 22, 7, [BrokerEndpoint("PEER", "h", 1)], log_dirs=["A" * 22])),
    ]


def _run_metadata(data: bytes) -> object:
    if data[:1] == b"\0":
        control = decode_control_record(bytes([0, 0, 0, *data[1:2]]), data[2:])
        encode_control_record(control)
        return type(control).__name__
    record = decode_record(data)
    described = describe_record(data)
    encode_record(described)
    return type(record).__name__, getattr(described, "kind", ""), described.version


def _run_verify(data: bytes) -> object:
    file = window(data)
    count = 0
    try:
        for _ in walk(file):
            count += 1
    except Broken as broken:
        after = resume(file, broken.position, 0, broken.size)
        return (min(count, 3), broken.reason[:12], after is not None)
    return min(count, 3)


_NAMES: Final = (
    "0.index",
    "0.timeindex",
    "0.txnindex",
    "0.snapshot",
    "replog.mark",
    "leader-epoch-checkpoint",
    "replog.config",
    "partition.metadata",
)
_NAMES_MORE: Final = (
    "meta.properties",
    ".kafka_cleanshutdown",
    "replication-offset-checkpoint",
    "replog.controller",
    "replog.incarnation",
)


def _small() -> list[bytes]:
    names = (*_NAMES, *_NAMES_MORE)
    found = []
    for number in range(len(names)):
        found += [
            bytes([number]) + seed
            for seed in (*_snapshots()[:1], *_aborted()[:1], *_marks()[:1], b"0\n1\nt 0 5\n", b"{}")
        ]
    return found


def _run_small(data: bytes) -> object:
    names = (*_NAMES, *_NAMES_MORE)
    if not data:
        return None
    name = names[data[0] % len(names)]
    rows = list(small_file(name, data[1:]))
    json.dumps(rows, default=str)
    return (name, min(len(rows), 3), any("damage" in row for row in rows))


def _run_rows(data: bytes) -> object:
    if not data:
        return None
    form = ("ndjson", "csv", "lines")[data[0] % 3]
    fields = Fields(timestamp="t") if data[0] & 64 else Fields()
    style = Style(
        ";" if data[0] & 32 and form == "csv" else None, "latin-1" if data[0] & 16 and form != "lines" else None
    )
    rows = list(read_rows(Lines(cast("Any", BytesIO(data[1:]))), form, fields, style))
    return (form, min(len(rows), 3))


def _seal_json(data: bytes, chance: Random) -> bytes:
    """With the head of a controller's state that fits, now and then: else nothing gets past its checksum."""
    line = data.rpartition(b"\n")[2] if data.startswith(b"pyreplog-controller") else data
    line = line.replace(b"\n", b" ")
    return b"pyreplog-controller 1 %08x\n%s\n" % (crc32c(line), line) if chance.random() < 0.5 else line


def _run_json(data: bytes) -> object:
    """A clean shutdown marker, which is none where it is not to be understood, and a controller's state."""
    disk = SimDisk()
    disk.create(CLEAN_SHUTDOWN_NAME).write_at(0, [data])
    farewell = read_farewell(disk, "")
    if data.startswith(b"pyreplog-controller"):
        return decode(data, "x").cluster_id
    return farewell is None, farewell is not None and farewell.store is not None


_CHECKPOINTS: Final = [
    b"",
    b"0\n0\n",
    b"0\n1\nt 0 5\n",
    b"0\n2\nt 0 5\nt-x.y_z 12 9223372036854775807\n",
    b"0\n3\n0 0\n1 5\n7 100\n",
    b"0\n1\n5\n",
]
_STATES: Final = [
    b"durability: sync\nversion: 0\ncrc32c: 008287ae\n",
    b"durability: os\nmin.insync.replicas: 2\nretention.ms: 5\nsegment.bytes: 20000\nversion: 0\ncrc32c: 00000000\n",
]
_IDENTITIES: Final = [
    b"version: 0\ntopic_id: AbCdEfGhIjKlMnOpQrStUw",
    (
        b"#\n#Sat Nov 21 15:25:47 UTC"
        b" 2026\nnode.id=0\ndirectory.id=Q-JpxQ6Wr-ifaei75IycgA\nversion=1\ncluster.id=DoTFZlyqu6_FfTPOZFUwhg\n"
    ),
]
_JSON: Final = [
    b"",
    b'{"version":0,"brokerEpoch":146}',
    b'{"version":0,"brokerEpoch":-1,"replogIncarnation":"Q-JpxQ6Wr-ifaei75IycgA","replogStoreSize":8192,"replogStoreCrc":12}',
    b"[" * 20_000,
]
_PLACES: Final = [
    format_state(format_places(places))
    for places in (
        [
            ImportedUpTo(
                "/data/rows.ndjson",
                "t",
                0,
                ("ndjson",) + (None,) * 5,
                170,
                7,
                1_700_000_000_000_000_000,
                17,
                5017,
                done=False,
            )
        ],
        [
            ImportedUpTo("/a b\n.csv", "t", 0, ("csv", "*", "k", None, None, None), 0, 0, -1, 0, 5017, done=True),
            ImportedUpTo("/\udcff.parquet", "u", 3, ("parquet",) + (None,) * 5, 2**40, 2**32 - 1, 0, 9, 9, done=False),
        ],
    )
]
_NODES: Final = [
    format_state(format_nodes(folders, cluster))
    for folders, cluster in (({1: "/disk1/n1", 2: "node-2", 3: "/\udcff\n x"}, ""), ({}, "/srv/data"), ({1: "n"}, ""))
]
_ROWS: Final = [
    b'\x00{"value":"a","key":"b","headers":[{"key":"h","value":null}],"timestamp":5,"partition":1}\n{"value_base64":"/wA="}\n',
    b'\x01value,key,timestamp\na,b,5\n"x,\ny",c,2013-01-01T00:00:00Z\n',
    b'\x40{"t":"2013-01-01T10:00:00Z","x":{"y":[1,2.5,null]}}\n',
    b"\x02one\ntwo\n",
]

TARGETS: Final = (
    Target("batch", _batches, _run_batch, (CorruptError,), 29, seal_batch),
    Target("segment", _segments, _run_segment, (), 20, seal_batch),
    Target("legacy", old_segments, _run_old, (CorruptError,), 4, seal_old),
    Target("indexes", _indexes, _run_indexes, (), 12),
    Target("checkpoint", lambda: _CHECKPOINTS, _run_checkpoint, (), 5),
    Target("mark", _marks, _run_mark, (), 5, seal_mark),
    Target("readers", _reader_files, _run_reader_file, (CorruptError,), 2, seal_reader_file),
    Target("settings", lambda: _STATES, _run_settings, (CorruptError, ConfigError), 2, seal_state),
    Target("import", lambda: _PLACES, _run_place, (CorruptError,), 1, seal_state),
    Target("nodes", lambda: _NODES, _run_nodes, (CorruptError,), 1, seal_state),
    Target("identity", lambda: _IDENTITIES, _run_identity, (), 4),
    Target(
        "snapshot", _snapshots, lambda data: min(len(parse_producers(data, "x")), 4), (CorruptError,), 4, seal_snapshot
    ),
    Target("cleaner", _cleaned_batches, _run_cleaner, (CorruptError,), 8, seal_batch),
    Target("gaps", _gaps, _run_gaps, (CorruptError,), 8, _seal_gaps),
    Target("aborted", _aborted, lambda data: min(len(parse_aborted(data, 0, "x")), 4), (CorruptError,), 4),
    Target("compression", _packed, _run_packed, (CorruptError,), 4),
    Target("wire", _messages, _run_message, (ProtocolError,), 4),
    Target("metadata", _metadata, _run_metadata, (ProtocolError,), 4),
    Target("verify", lambda: _segments() + old_segments(), _run_verify, (), 2, seal_batch),
    Target("show", _small, _run_small, (), 1),
    Target("rows", lambda: _ROWS, _run_rows, (RowError,), 1),
    Target("json", lambda: _JSON, _run_json, (CorruptError,), 1, _seal_json),
    Target("client", _clients, _run_client, (CorruptError, InvalidRequestError, InvalidTimestampError), 3, seal_batch),
    Target("search", lambda: [_TIMED], _run_search, (), 3),
    TWINS,
    QUORUM,
    QUEUES,
    TABLES,
    *KEPT,
)

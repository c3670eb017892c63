"""Targets of a whole log and its folder, of what nobody writes but this library (or Spark for it), of names, and of
peers' frames."""

from __future__ import annotations

import functools
import json
import struct
from contextlib import suppress
from random import Random
from typing import Final

from pyreplog._core import crc32c
from pyreplog.backups.making import make
from pyreplog.config import LogConfig
from pyreplog.controller import ControllerState, MetadataImage, decode, encode
from pyreplog.errors import ConfigError, CorruptError, InvalidTopicError, ProtocolError, PyreplogError
from pyreplog.log import CONTROLLER_NAME, Log, LogRoot, find_logs, frame_controller
from pyreplog.log.controller_file import controller_body
from pyreplog.log.identity import format_topic_id, id_for_name
from pyreplog.log.layout import check_topic, directory_name, parse_base_offset, parse_directory_name, segment_name
from pyreplog.log.root_discovery import is_removed_node, may_be_partition
from pyreplog.log.snapshot import format_state, parse_number, parse_state
from pyreplog.log.summary import Summary, checked, decode_body, decode_key, due_ms, encode_body, encode_key
from pyreplog.readers.layout import OFFSETS_PREFIX, offsets_file_name, reader_name_of
from pyreplog.record import RecordBatch, control_records, split
from pyreplog.repair import PartitionPlan, apply_repair, plan_repair
from pyreplog.runtime.node_folders import left_nodes
from pyreplog.spark.offsets import parse_offsets, parse_timestamp, parse_timestamps
from pyreplog.spark.progress import StreamProgress
from pyreplog.spool.applied import Applied
from pyreplog.spool.fingerprint import Fingerprint
from pyreplog.spool.layout import BatchId, parse_name, staged_name
from pyreplog.spool.manifest import Manifest
from pyreplog.spool.staged import StagedFile, parse_footer
from pyreplog.testing.disk import SimDisk
from pyreplog.values import EpochEntry, TopicPartition
from pyreplog.verify import Level, could_be_ours, look_around, verify
from pyreplog.verify.logs import has_left
from pyreplog.verify.spool import applied as applied_of
from pyreplog.verify.states import Unreadable, identity, partition_of, taken_for
from pyreplog.wire import Conversation, MetadataRequest, MetadataResponse, Request, Response
from tests.faults.flips.golden import KEY, ROOT, files, golden, served
from tests.faults.fuzz.mutate import seal_batch, seal_state
from tests.faults.fuzz.target import Target
from tests.interop.golden.own import controller
from tests.interop.golden.units import unit
from tests.unit.log.producing import Play
from tests.unit.log.support import CLOCK, batch, create, raw, sync

TOPIC_ID: Final = "AbCdEfGhIjKlMnOpQrStUw"


def _controls() -> list[bytes]:
    found = []
    for path in sorted((unit("clean-4.1.0") / "data" / "txn-0").glob("*.log")):
        found += [bytes(one.data) for one in split(path.read_bytes()) if one.is_control][:6]
    return found


def _run_control(data: bytes) -> object:
    one = RecordBatch(data)
    one.check_crc()
    return (min(len(found := control_records(one)), 3), *{record.name for record in found})


def _summaries() -> list[bytes]:
    one = Summary(
        TOPIC_ID,
        "sync",
        False,
        0,
        4,
        90,
        90,
        90,
        (EpochEntry(0, 0), EpochEntry(3, 50)),
        ((0, 1000), (40, 700)),
        2**63 - 1,
    )
    bare = Summary(TOPIC_ID, "os", True, 0, 0, 0, 0, 0, (), (), 0, True)
    keys = [encode_key(TopicPartition(topic, number)) for topic, number in (("t", 0), ("a-b.c_d", 2**31 - 1))]
    return [bytes([1]) + encode_body(one), bytes([1]) + encode_body(bare), *(bytes([0]) + key for key in keys)]


def _run_summary(data: bytes) -> object:
    if not data:
        return None
    if data[0] & 1:
        found = decode_body(data[1:])
        assert due_ms(data[1:]) == found.retention_due_ms
        assert not checked(b"t", "generation", data[1:])
        return (
            found.durability,
            found.incomplete,
            min(len(found.epochs), 3),
            min(len(found.segments), 3),
            found.latest_epoch < 0,
        )
    key = decode_key(data[1:])
    assert encode_key(key) == data[1:]
    return min(key.partition, 3)


def _names() -> list[bytes]:
    batch = BatchId("query_1", 7)
    texts = [
        directory_name("a-b.c", 12),
        "t-0.0123456789abcdef-delete",
        "t-1.x-future",
        segment_name(42, ".log"),
        "9" * 20 + ".log",
    ]
    texts += [
        "replog.spool.q.applied",
        "replog.offsets-%billing",
        "replog.spool.q.3.manifest",
        staged_name(batch, "3-abc"),
        "-5",
        "9223372036854775807",
        "t-007",
        "node-3.removed",
        "node-12.removed-2",
    ]
    return [text.encode() for text in texts]


def _run_names(data: bytes) -> object:
    name = data.decode("utf-8", "surrogateescape")  # as the system gives them
    reader = reader_name_of(name, OFFSETS_PREFIX)
    assert reader is None or offsets_file_name(reader) == name or len(name) > 232
    folder, base, spooled, said = (
        parse_directory_name(name),
        parse_base_offset(name),
        parse_name(name),
        partition_of(name),
    )
    assert is_removed_node(name) == has_left(name)
    assert all(0 <= number < 1000 and is_removed_node(name) for number in left_nodes([name]))
    # What one of both takes for a live partition is one for the other, too.
    assert folder is None or folder.kind or said == tuple(folder.topic_partition)
    plain = taken_for(name)
    assert not plain or (said is None and partition_of(plain) is not None)
    try:
        number = parse_number(name, -1, 2**63 - 1) > 0
    except ValueError:
        number = False
    kinds = (
        [None if one is None else one.kind for one in (folder, spooled)],
        base is None,
        said is None,
        number,
        not plain,
    )
    assert (
        folder is None
        or folder.kind
        or directory_name(*folder.topic_partition).rpartition("-")[0] == name.rpartition("-")[0]
    )
    with suppress(InvalidTopicError):
        assert check_topic(name) == name
    return kinds


def _controllers() -> list[bytes]:
    return [encode(controller()), encode(ControllerState(TOPIC_ID, MetadataImage()))]


def _seal_controller(data: bytes, chance: Random) -> bytes:
    head, newline, rest = data.partition(b"\n")
    if not newline or chance.random() < 0.2:
        return data
    line = rest.removesuffix(b"\n")
    return b"%s %08x\n%s\n" % (b" ".join(head.split(b" ")[:2]), crc32c(line), line)


def _run_controller(data: bytes) -> object:
    found = decode(data, "x")
    encode(found)
    return (min(len(found.image.brokers), 2), min(len(found.image.topics), 2), bool(found.image.suspects()))


def put(disk: SimDisk, path: str, content: bytes) -> None:
    """Make the file ``path`` with this content."""
    file = disk.create(path)
    file.write_at(0, [content])
    file.close()


def _homes() -> list[bytes]:
    ids = [TOPIC_ID, "AAAAAAAAAAAAAAAAAAAAAQ", id_for_name("t")]
    files = [bytes([number % 2]) + format_topic_id(one) for number, one in enumerate([*ids, *ids])]
    body = json.dumps({"cluster_id": TOPIC_ID, "topics": [{"name": "t", "id": TOPIC_ID}]}).encode()
    names = [
        b"lost+found",
        b"t-0",
        b"node-1",
        b"t-0.0123456789abcdef0123456789abcdef-delete",
        b"a-b.Q-JpxQ6Wr_x-delete",
        b".git",
    ]
    return [*files, b"\x02" + body, *(b"\x03" + name for name in names)]


def _run_home(data: bytes) -> object:
    """Two folders side by side, a controller's file, or the name of a folder: the finder and the verifier judge
    alike, and nothing that is not ours goes."""
    if not data:
        return None
    kind, content = data[0] % 4, data[1:]
    disk = SimDisk(Random(1))
    if kind == 2:
        disk.make_directory("w")
        put(disk, f"w/{CONTROLLER_NAME}", frame_controller(content))
        found = controller_body(disk, "w")
        return found is None or len(found.topic_ids) > 0
    if kind == 3:
        name = content.decode("utf-8", "replace").replace("/", "").replace("\0", "")[:200]
        if could_be_ours(name):
            may_be_partition(name)
        root = LogRoot.open(disk, "w", clock=CLOCK, random=Random(5))
        root.close(clean=True)
        if not name or name in (".", "..") or name in disk.list("w"):
            return None
        disk.make_directory(f"w/{name}")
        LogRoot.open(disk, "w", clock=CLOCK, random=Random(5)).close(clean=True)
        parsed = parse_directory_name(name)
        assert name in disk.list("w") or (parsed is not None and parsed.kind == "delete"), (
            "a folder of another program was removed"
        )
        return parsed is None
    for folder in ("a", "b"):
        disk.make_directory(f"w/{folder}/t-0")
        put(
            disk,
            f"w/{folder}/t-0/partition.metadata",
            content if kind == 0 or folder == "a" else format_topic_id(TOPIC_ID),
        )
        put(disk, f"w/{folder}/t-0/{segment_name(0, '.log')}", b"")
    try:
        identity(content)
    except Unreadable:  # the verifier takes only the form that Kafka writes
        return None
    groups = sorted(sorted(root.path for root in log.roots) for log in find_logs(disk, "w").logs)
    seen = sorted(sorted(root.path for root in log.roots) for log in look_around(disk, "w").logs)
    assert groups == seen, f"the finder sees {groups}, the verifier {seen}"
    return len(groups)


def _spools() -> list[bytes]:
    batch = BatchId("query_1", 7)
    manifest = Manifest(batch, (StagedFile(staged_name(batch, "3-abc"), 900, 800, 5, 12),))
    footer = {"version": "0", "batch.000000000": "t 0 500", "batch.000000001": "u 3 300"}
    applied = Applied(7, fingerprint=Fingerprint(12, 0xFEDCBA9876543210))
    other = Manifest(batch, (), once=True, fingerprint=Fingerprint(0, 0))
    return [format_state(values) for values in (manifest.to_values(), other.to_values(), applied.to_values(), footer)]


def _run_spool(data: bytes) -> object:
    words: list[object] = []
    try:
        manifest = Manifest.from_values(parse_state(data, "x"), "x")
        words.append((min(len(manifest.files), 3), manifest.once, manifest.fingerprint is None))
    except CorruptError as error:
        words.append(error.reason[:12])
    try:
        entries = parse_footer(data, "x", 800)
        assert all(length >= 0 for _, length in entries)
        words.append(min(len(entries), 3))
    except CorruptError as error:
        words.append(error.reason[:12])
    try:
        applied = Applied.from_values(parse_state(data, "x"), "x")
        words.append((applied.once, applied.fingerprint is None))
    except CorruptError as error:
        words.append(error.reason[:12])
    else:
        with suppress(Unreadable):  # verify is stricter about numbers, and reads the same where it reads any
            assert applied_of(data) == (applied.batch, *(applied.fingerprint or (-1, -1)))
    return tuple(words)


def _asked() -> Conversation:
    """One who has asked one thing, under number 5."""
    here = Conversation("here", "there")
    here.encode(Request("here", 5, MetadataRequest()))
    return here


def _frames() -> list[bytes]:
    ask = b"".join(map(bytes, Conversation("there", "here").encode(Request("there", 5, MetadataRequest()))))
    answer = b"".join(map(bytes, Conversation("there", "here").encode(Response("there", 5, MetadataResponse([], [])))))
    return [bytes([0]) + ask, bytes([1]) + answer, bytes([1, 0, 0, 0, 5])]


def _run_frame(data: bytes) -> object:
    if not data:
        return None
    if data[0] & 1:
        return type(_asked().decode_response(data[1:]).body).__name__
    return type(_asked().decode_request(data[1:]).body).__name__


_OPTIONS: Final = [
    b'\x00{"orders": {"0": 23, "1": -1}}',
    b'\x01{"orders": {"0": 1700000000000}}',
    b"\x022024-06-01T00:00:00Z",
    (
        b'\x03{"v": 1, "t": {"orders": {"0": 5}}, "from": {"orders": {"1": 0}}, "id": {"orders":'
        b' "AbCdEfGhIjKlMnOpQrStUw"}}'
    ),
    b'\x03{"v": 1, "t": {"t": {"0": 5, "1": 6}}, "id": {"t": {"0": "AbCdEfGhIjKlMnOpQrStUw"}}}',
    (
        b'\x03{"v": 2, "logs": {"w-0": {"cluster": "AbC", "t": {"t": {"0": 5}}, "id": {"t": "x"}}, "w-1": {"t": {},'
        b' "from": {"t": {"1": 0}}}}}'
    ),
    b'\x04{"w-0": {"orders": {"0": 23, "1": -1}}}',
    b'\x05{"w-0": {"orders": {"0": 1700000000000}}}',
]


def _run_spark(data: bytes) -> object:
    if not data:
        return None
    text = data[1:].decode("utf-8", "replace")
    kind = data[0] % 6
    if kind >= 4:
        return (kind, bool((parse_offsets, parse_timestamps)[kind - 4](text, "option", by_log=True)))
    if kind == 3:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return "no JSON"  # of that Spark makes sure
        found = StreamProgress.from_json(value)
        assert StreamProgress.from_json(json.loads(json.dumps(found.to_json()))) == found
        return (min(len(found.ends), 3), bool(found.starts), bool(found.topic_ids))
    return (kind, bool((parse_offsets, parse_timestamps, parse_timestamp)[kind](text, "option")))


@functools.cache
def _played(*, marked: bool) -> SimDisk:
    """A log with transactions and missing offsets, which was not closed in order; without our marks it is one of an
    old broker's, in which the last segment but one goes on with what the index cannot say."""
    disk = SimDisk(Random(1))
    root = LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, TOPIC_ID, LogConfig(segment_bytes=1024, index_interval_bytes=100))
    play = Play(log)
    for commit in (True, False):
        play.data(1)
        play.end(1, commit=commit)
        play.other()
    log.append_as_follower([batch(2, base_offset=log.end_offset + 5, leader_epoch=3, timestamp=1000)])
    log.append_as_follower([batch(2, base_offset=log.end_offset, leader_epoch=3, timestamp=2000)])
    sync(disk, log)
    log.set_high_watermark(log.end_offset)
    log.write_mark()
    log.append_as_follower([batch(2, base_offset=log.end_offset, leader_epoch=4, timestamp=3000)])
    if not marked:
        log.append_as_follower([batch(2, base_offset=2**31 + 50, leader_epoch=4)])
    root.close(clean=False)
    if not marked:
        for path in list(files(disk)):
            if "/replog." in path:
                disk.remove(path)
        before, last = sorted(path for path in files(disk) if path.endswith(".log"))[-2:]
        file = disk.open(before, write=True)
        file.write_at(file.size(), [disk.open(last).read_at(0, 1 << 16)])
        file.close()
        for path in list(files(disk)):
            if path.startswith(last.removesuffix("log")):
                disk.remove(path)
    disk.write_back()
    return disk


@functools.cache
def _old() -> SimDisk:
    """A partition of an old broker that begins with messages of formats before 0.11."""
    disk = SimDisk(Random(1))
    disk.make_directory(f"{ROOT}/t-0")
    for path in sorted((unit("old-format-2.8.2") / "data" / "magicmix-lz4-0").iterdir()):
        file = disk.create(f"{ROOT}/t-0/{path.name}")
        file.write_at(0, [path.read_bytes()])
        file.close()
    disk.write_back()
    return disk


@functools.cache
def _places() -> list[tuple[SimDisk, str]]:
    """Every file that an input may stand for."""
    disks = (golden("open").disk, golden("packed").disk, _played(marked=True), _played(marked=False), _old())
    return [(disk, path) for disk in disks for path in files(disk)]


def _folders() -> list[bytes]:
    """What the files of several logs hold, each behind the number of the file that it stands for."""
    found = [
        bytes([number]) + bytes(disk.open(path).read_at(0, 1 << 16)) for number, (disk, path) in enumerate(_places())
    ]
    for number, (disk, path) in enumerate(_places()):
        if path.endswith(".log") and disk is not _old():
            content = bytearray(disk.open(path).read_at(0, 1 << 16))
            for one in split(bytes(content))[-2:]:
                # One leader epoch more, and a greater offset: nothing but the history and the next
                # batch says that it is wrong.
                at = content.rindex(one.data)
                for place in (at + 15, at + 6):
                    changed = bytearray(content)
                    changed[place] += 1
                    found.append(bytes([number]) + changed)
    return found


def _save(disk: SimDisk, plans: list[PartitionPlan]) -> None:
    """Whatever is planned can be done, and what comes of it is sound."""
    try:
        apply_repair(disk, ROOT, "saved", plans, clock=CLOCK, random=Random(3))
    except PyreplogError as error:
        raise AssertionError(f"a plan that cannot be carried out: {error!r}") from error
    assert verify(disk, "saved").worst is not Level.DAMAGE


def _run_folder(data: bytes) -> object:
    """One file of a whole root is the input: read beside, repaired, verified, opened by a writer, read and cut as
    replicas do."""
    if not data:
        return None
    places = _places()
    source, path = places[data[0] % len(places)]
    disk = source.snapshot()
    file = disk.open(path, write=True)
    file.truncate(0)
    file.write_at(0, [data[1:]])
    file.close()
    seen = [one if isinstance(one, str) else str(min(len(one), 4)) for one in served(disk).values()]
    seen.append(str(min(len(verify(disk, ROOT).findings), 3)))
    plans = plan_repair(disk, ROOT)
    seen.append(str(sum(bool(plan.lost) for plan in plans)))
    _save(disk, plans)
    seen.append(_back_up(disk))
    try:
        root = LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(5))
    except PyreplogError as error:
        return (*seen, type(error).__name__)
    try:
        log = root.logs.get(KEY)
        if log is None:
            return (*seen, True, False)
        try:
            seen.append(str(bool(raw(log))))
            log.read(log.start_offset, 1 << 16, log.end_offset, checked=True)
            for timestamp in (1005, 2500):
                log.find_timestamp(timestamp, log.end_offset)
            log.truncate_to((log.start_offset + log.end_offset) // 2)
        except PyreplogError as error:
            return (*seen, type(error).__name__)
        return (*seen, False, log.end_offset > log.start_offset)
    finally:
        root.close(clean=False)


def _back_up(disk: SimDisk) -> str:
    """A backup of the root is sound, or refused by a typed error."""
    try:
        report = make(disk, ROOT, "kept", random=Random(4))
    except PyreplogError as error:
        return type(error).__name__
    assert verify(disk, "kept").worst is not Level.DAMAGE
    return str(bool(report))


def _seal_appended(data: bytes, chance: Random) -> bytes:
    return data[:1] + seal_batch(data[1:], chance)


_APPENDED_MAX: Final = 200


@functools.cache
def _log() -> Log:
    """One log, which takes what it is given until it is cut again."""
    disk = SimDisk(Random(1))
    disk.make_directory(ROOT)
    log = create(disk, f"{ROOT}/t-0", LogConfig(durability="os", segment_bytes=1 << 20))
    log.become_leader(0)
    return log


def _appended() -> list[bytes]:
    """A client's batches, and a leader's, alone or the same twice at once."""
    return [
        bytes([number % 4]) + bytes(batch(1 + number % 3, codec=number % 5, leader_epoch=0)) for number in range(10)
    ]


def _run_append(data: bytes) -> object:
    """What a log takes, from a client or from the partition's leader, it gives back whole."""
    log = _log()
    end = log.end_offset
    if end > _APPENDED_MAX:
        log.truncate_fully(0)
        end = 0
    if len(data) < 28:
        return None
    reached = end
    try:
        if data[0] & 1:
            left = [(bytearray(data[1:]), False) for _ in range(2 if data[0] & 2 else 1)]
            while left:
                del left[: len(log.append_many_as_leader(left, 0))]
                reached = log.end_offset
        else:
            behind = end + 1 + int.from_bytes(data[24:28], "big", signed=True)
            bases = [end, behind] if data[0] & 2 and behind >= 0 else [end]
            log.append_as_follower([struct.pack(">q", base) + data[9:] for base in bases])
    except PyreplogError as error:
        assert log.end_offset == reached
        return type(error).__name__
    found = b"".join(log.read(end, 1 << 20, log.end_offset).parts())
    offset = end
    for one in split(found):
        one.check_crc()
        # A leader's batches may leave offsets out, as those of a compacted log do.
        assert one.base_offset == offset or (not data[0] & 1 and one.base_offset > offset)
        offset = one.next_offset
    assert offset == log.end_offset
    return (data[0] & 3, min(offset - end, 4), RecordBatch(found).codec if found else -1)


KEPT: Final = (
    Target("append", _appended, _run_append, (), 3, _seal_appended),
    Target("folder", _folders, _run_folder, (PyreplogError,), 1),
    Target("control", _controls, _run_control, (CorruptError,), 2, seal_batch),
    Target("summary", _summaries, _run_summary, (CorruptError,), 2),
    Target("names", _names, _run_names, (), 2),
    Target("home", _homes, _run_home, (PyreplogError,), 2),
    Target("controller", _controllers, _run_controller, (CorruptError,), 2, _seal_controller),
    Target("spool", _spools, _run_spool, (), 2, seal_state),
    Target("frame", _frames, _run_frame, (ProtocolError,), 3),
    Target("spark", lambda: _OPTIONS, _run_spark, (ConfigError,), 1),
)

"""Whatever takes bytes or text apart that came from a file, a peer or a name is fed by a target, or it is said here
why not."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import FrameType
from typing import Final

import pytest

import pyreplog
from tests.faults.fuzz.mutate import mutate
from tests.faults.fuzz.run import execute, regressions
from tests.faults.fuzz.target import Target
from tests.faults.fuzz.targets import TARGETS
from tests.house.sources import PACKAGE, dotted, tree

FED: Final = {
    "append": ["_core.SegmentEnd"],
    "aborted": ["log/transaction_index.parse_aborted"],
    "batch": ["_core.RecordBatch", "_core.crc32c"],
    "checkpoint": ["log/epochs.EpochCache.parse", "log/snapshot.parse_entries", "log/snapshot.parse_offsets"],
    "client": ["_core.stamp", "record/header.set_attributes"],
    "compression": ["record/compression._snappy_blocks"],
    "control": ["record/control.control_records"],
    "controller": ["controller/state.decode"],
    "folder": [
        "log/contiguity.ContiguityCheck._check_batches",
        "log/duplicate._Duplicator._aborted",
        "log/resumption.begins_at",
        "log/resumption.least_end",
        "log/scan.describe_damage",
        "log/resumption._search",
        "log/resumption.resume",
        "record/header.base_offset_of",
        "record/header.extent_of",
        "record/header.size_of",
        "repair/plan._lose_moved",
        "repair/plan._extent",
        "repair/plan._mend",
        "verify/folder.FolderCheck._leftovers",
        "verify/folder.segment_bases",
        "verify/folder.segment_files",
        "verify/folder.snapshots",
        "verify/indexes.OffsetIndexCheck.__init__",
        "verify/indexes.TimeIndexCheck.__init__",
        "verify/producers.Producers.marker",
        "verify/producers.control_type",
        "verify/root._Root.run",
        "verify/spool.check_spool",
    ],
    "home": [
        "log/controller_file.controller_body",
        "log/root_discovery._walk",
        "log/root_discovery.may_be_partition",
        "log/root_discovery.proves_topic",
        "log/partition_folders.PartitionFolders.is_leftover",
        "verify/logs._proves",
        "verify/logs.could_be_ours",
    ],
    "cleaner": ["_core.BatchCleaner", "_core.KeyMap", "_core.find_gaps"],
    "gaps": [
        "log/gaps._parse_block",
        "log/gaps.parse_gaps",
        "verify/gaps._block",
        "verify/gaps.dropped_tombstone",
    ],
    "frame": ["wire/conversation.Conversation.decode_request", "wire/conversation.Conversation.decode_response"],
    "json": ["log/clean_shutdown.read_farewell"],
    "identity": ["log/identity.decode_uuid", "log/identity.parse_properties"],
    "import": ["cli/resuming.parse_places", "verify/states.imports"],
    "indexes": ["_core.OffsetIndex", "_core.TimeIndex"],
    "legacy": ["_core.legacy_messages", "record/legacy._mend_lz4", "record/legacy._xxh32"],
    "mark": ["log/mark.parse_mark", "log/mark.parse_slot"],
    "nodes": ["log/node_list._folder_of", "log/node_list.parse_nodes", "verify/nodes.node_list"],
    "names": [
        "log/layout.check_topic",
        "log/layout.parse_base_offset",
        "log/layout.parse_directory_name",
        "log/root_discovery.is_removed_node",
        "log/snapshot.parse_number",
        "runtime/node_folders.left_nodes",
        "spool/layout.parse_name",
        "verify/logs.has_left",
        "verify/states.partition_of",
        "verify/states.taken_for",
    ],
    "queue": [
        "readers/layout.reader_name_of",
        "readers/queue_entries._decode",
        "readers/queue_entries._decode_runs",
        "readers/queue_entries._decode_snapshot",
        "readers/queue_entries.decode_entry",
        "readers/queue_damage._plausible",
        "readers/queue_damage.find_entry_behind",
        "readers/queue_journal.QueueJournal._was_used",
        "readers/queue_journal._entries",
        "readers/queue_slots.name_of",
        "readers/queue_slots.slots_of",
        "verify/queues.QueueJournalView._find_damaged_slot",
        "verify/queues.QueueJournalView._snapshot",
        "verify/queues.QueueJournalView._take",
        "verify/queues.QueueJournalView._walk",
        "verify/queues._name",
        "verify/queues._slot",
    ],
    "quorum": [
        "controller/change_codec.ChangeDecoder.decode",
        "controller/image_loader.ImageLoader.add",
        "controller/image_loader.decode_known",
        "controller/image_store.decode_mark",
        "log/cluster_metadata.MetadataFolder.__init__",
        "log/cluster_metadata._RecordBytes.int32",
        "quorum/snapshots._Walk.next_batch",
        "quorum/snapshots.parse_snapshot_name",
        "quorum/state_file._read_slot",
        "quorum/state_file.decode_state",
        "verify/metadata._FolderCheck.__init__",
        "verify/metadata_records.RecordFields.number",
        "verify/vote._slot",
        "verify/vote.state_fields",
    ],
    "readers": [
        "readers/offsets_file.parse_entry",
        "readers/offsets_file.parse_offsets_file",
        "verify/readers._entry",
        "verify/readers.reader_file",
    ],
    "rows": ["cli/options.timestamp_of", "cli/row_fields._bytes", "cli/row_fields._whole"],
    "table": [
        "readers/table_store._long_entry",
        "readers/table_store.decode_table_state",
        "readers/table_store.read_table_header",
        "verify/tables.table_header",
    ],
    "search": ["_core.TimeSearch"],
    "segment": [
        "_core.ColumnsBuilder",
        "_core.SegmentScanner",
        "_core.find_offset",
        "_core.find_producers",
        "_core.find_timestamp",
        "_core.whole_batches",
    ],
    "settings": ["log/snapshot.parse_state"],
    "show": [
        "verify/show._index",
        "verify/states.aborted",
        "verify/states.controller",
        "verify/states.farewell",
        "verify/states.number",
        "verify/states.properties",
        "verify/states.slot_of",
        "verify/states.snapshot",
    ],
    "snapshot": ["log/producer_snapshot.parse_producers"],
    "spark": [
        "spark/offsets._by_place",
        "spark/offsets.parse_offsets",
        "spark/offsets.parse_timestamp",
        "spark/offsets.parse_timestamps",
    ],
    "spool": ["spool/fingerprint.Fingerprint.from_text", "spool/staged.parse_footer", "verify/spool.applied"],
    "summary": ["log/summary.checked", "log/summary.decode_body", "log/summary.decode_key", "log/summary.due_ms"],
    "twins": [
        "verify/codecs._lz4",
        "verify/codecs._snappy",
        "verify/records._old_content",
        "verify/records.old_records_of",
    ],
    "verify": [
        "verify/batches._offsets_claimed",
        "verify/batches._old_batch",
        "verify/batches.batch_at",
        "verify/batches.resume",
    ],
    "wire": ["wire/binary.Reader.number", "wire/codec.decode_value"],
    "metadata": [
        "wire/binary.Reader.numbers",
        "wire/control_records.decode_control_record",
        "wire/metadata_codec.decode_record",
    ],
}
NOT_FED: Final = {
    "words of whoever calls: options and arguments": [
        "controller/topics._check_name",
        "readers/layout.check_reader_name",
        "spark/options._amount",
        "spark/options._assigned",
        "spark/options.folder_of",
        "spark/options.parse_read_options",
        "spark/sink_options.parse_write_options",
        "spool/layout.check_id",
        "spool/layout.staged_name",
    ],
    "of the system, or of this process: the kernel's answers, and random bytes": [
        "_core.TailCache",
        "_core.murmur2",
        "_core.xxh64",
        "log/identity.random_uuid",
        "spool/layout.producer_of",
        "system/sync_batcher._SyncBatch.end",
        "system/file_lock._holder",
        "system/shared_file.SystemSharedFile.is_held",
    ],
    "draws bytes that others have taken apart": ["cli/picture._draw"],
    "Spark's own answer, which it took apart": ["spark/query_lag._of_sources"],
}
TAKING: Final = {"unpack", "unpack_from", "iter_unpack", "from_bytes", "fullmatch", "match", "fromisoformat"}


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef):
            yield f"{prefix}{child.name}", child


def _takes_apart(function: ast.FunctionDef) -> bool:
    if re.match(r"_?(parse|decode)(_|$)", function.name):
        return True
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return any(
        isinstance(call, ast.Attribute) and (call.attr in TAKING or dotted(call) == "json.loads") for call in calls
    )


def _parsers() -> set[str]:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        name = str(path.relative_to(PACKAGE).with_suffix(""))
        if not name.startswith("testing/"):
            found |= {f"{name}.{function}" for function, node in _functions(tree(path), "") if _takes_apart(node)}
    for path in (PACKAGE / "_core").glob("*.pyi"):
        found |= {f"_core.{name}" for name in _kernels(path)}
    return found


def _kernels(path: Path) -> Iterator[str]:
    """The names of a stub that are given stored bytes: a parameter ``data``, ``batch`` or ``key`` that is a buffer
    and no None, or ``batches`` that are some."""
    for child in tree(path).body:
        functions = (
            [child] if isinstance(child, ast.FunctionDef) else child.body if isinstance(child, ast.ClassDef) else []
        )
        arguments = [
            argument
            for function in functions
            if isinstance(function, ast.FunctionDef)
            for argument in function.args.args
        ]
        for argument in arguments:
            if getattr(child, "name", "_").startswith("_"):
                continue
            given = argument.annotation
            if argument.arg == "batches" and isinstance(given, ast.Subscript):
                given = given.slice
            if (
                argument.arg in {"data", "batch", "batches", "key"}
                and isinstance(given, ast.Name)
                and given.id == "Buffer"
            ):
                assert isinstance(child, ast.FunctionDef | ast.ClassDef)
                yield child.name


def test_every_parser_has_a_target() -> None:
    """All of them are listed above, once, and nothing else is."""
    listed = [name for names in (*FED.values(), *NOT_FED.values()) for name in names]
    assert len(listed) == len(set(listed))
    found = _parsers()
    assert found - set(listed) == set(), "fed by no target: add one to tests/faults/fuzz, and name it here"
    assert set(listed) - found == set(), "listed, and not there any more"


REACH_MAX: Final = 400
"""So many mutations at the most, beside the seeds, until all parsers of a target were called."""


@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_every_target_reaches_its_parsers(target: Target) -> None:
    """What is said to be fed by a target is called by it: by its seeds, or what soon comes of them."""
    waiting = {name: _lines(name) for name in FED[target.name] if not name.startswith("_core.")}
    called: set[tuple[str, int]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    pool = [*target.seeds(), *regressions(target)]
    chance = Random(target.name)
    before = sys.getprofile()
    for number in range(len(pool) + REACH_MAX):
        waiting = {name: lines for name, lines in waiting.items() if called.isdisjoint(lines)}
        if not waiting:
            break
        data = pool[number] if number < len(pool) else mutate(chance.choice(pool), pool, chance)
        if target.seal is not None and number >= len(pool):
            data = target.seal(data, chance)
        sys.setprofile(note)
        try:
            execute(target, data)
        finally:
            sys.setprofile(before)
    assert not waiting


def _lines(name: str) -> set[tuple[str, int]]:
    """Where a function may be said to begin: at its own line, or at its first decorator's. Of the package that
    runs, which the sanitized build copies."""
    module, _, path = name.partition(".")
    file = Path(pyreplog.__file__).parent / f"{module}.py"
    (node,) = (node for found, node in _functions(tree(file), "") if found == path)
    return {(str(file), node.lineno), *((str(file), one.lineno) for one in node.decorator_list)}


def test_every_target_is_one_of_some_parser() -> None:
    """And every parser is said to be fed by one that there is."""
    assert {target.name for target in TARGETS} == FED.keys()

"""The small files of a log as rows of names and values, for a person or a script to look at."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from pyreplog.verify import states
from pyreplog.verify.gaps import recorded_gaps
from pyreplog.verify.nodes import NODES, node_list
from pyreplog.verify.queues import QUEUE, queue_rows
from pyreplog.verify.readers import PREFIX as OFFSETS
from pyreplog.verify.readers import reader_file
from pyreplog.verify.states import Slot, Unreadable
from pyreplog.verify.tables import STORE, TABLE, table_header
from pyreplog.verify.vote import QUORUM_STATE, VOUCHER, slots_of, state_fields

Row = dict[str, Any]
_INDEX: Final = struct.Struct(">ii")
_TIME_INDEX: Final = struct.Struct(">qi")
_ABORTED_SIZE: Final = 34


def small_file(name: str, data: bytes) -> Iterator[Row]:
    """Yield the content of a file of this ``name`` as rows. A row with ``damage`` describes an unreadable part."""
    try:
        yield from _rows(name, data)
    except Unreadable as error:
        yield {"damage": str(error)}


def _rows(name: str, data: bytes) -> Iterator[Row]:
    stem, _, suffix = name.partition(".")
    if suffix in ("index", "timeindex") and stem.isascii() and stem.isdigit():
        yield from _index(int(stem), data, times=suffix == "timeindex")
    elif suffix == "txnindex":
        for slot, entry in enumerate(states.aborted(data)):
            yield {"position": slot * _ABORTED_SIZE, **entry._asdict()}
        if len(data) % _ABORTED_SIZE:
            yield {"damage": f"{len(data) % _ABORTED_SIZE} bytes behind the last whole entry"}
    elif suffix == "gaps" and stem.isascii() and stem.isdigit():
        for start, end in recorded_gaps(data, int(stem)).items():
            yield {"start": start, "end": end}
    elif suffix == "snapshot":
        producers = states.snapshot(data)
        yield {"producers": len(producers)}
        for producer in producers:
            yield producer._asdict()
    elif name == states.MARK:
        yield from _mark(data)
    elif name in states.OFFSET_CHECKPOINTS:
        for (topic, partition), offset in states.offsets(data).items():
            yield {"topic": topic, "partition": partition, "offset": offset}
    elif name == states.EPOCHS:
        for epoch, start in states.epochs(data):
            yield {"epoch": epoch, "start_offset": start}
    elif name == states.IDENTITY:
        yield {"topic_id": states.identity(data)}
    elif name == states.META:
        yield dict(states.properties(data))
    elif name in (states.BACKUP, states.CONFIG, states.INCARNATION):
        yield dict(states.state(data))
    elif name == states.IMPORT:
        yield from states.imports(data)
    elif name == NODES:
        yield from _nodes(data)
    elif name.startswith(OFFSETS):
        yield from _offsets(data)
    elif name == states.CLEAN:
        farewell = states.farewell(data)
        row: Row = {"clean_shutdown": True}
        if farewell.incarnation:
            row["incarnation_id"] = farewell.incarnation
        if farewell.summaries is not None:
            row["summaries_size"], row["summaries_crc32c"] = farewell.summaries
        yield row
    elif name == QUORUM_STATE:
        yield state_fields(data)
    elif name == VOUCHER:
        yield from _votes(data)
    elif name.startswith(TABLE):
        yield {"about": "the store of a table, an LMDB file"} if name.endswith(STORE) else table_header(data)
    elif name.startswith(QUEUE):
        yield from queue_rows(data)
    elif name == states.CONTROLLER:
        yield states.controller(data)
    else:
        yield {"about": f"{len(data)} bytes of no known kind"}


def _votes(data: bytes) -> Iterator[Row]:
    for number, slot in enumerate(slots_of(data)):
        if slot is None:
            yield {"slot": number, "about": "never written"}
        elif isinstance(slot, Unreadable):
            yield {"slot": number, "damage": str(slot)}
        else:
            row = slot._asdict()
            yield {"slot": number, **row.pop("vote")._asdict(), **row}


def _offsets(data: bytes) -> Iterator[Row]:
    found = reader_file(data)
    yield {"reader": found.name, **({"holder": found.holder} if found.holder else {})}
    for position, entry in found.entries:
        if isinstance(entry, Unreadable):
            yield {"position": position, "damage": str(entry)}
        else:
            row = {"position": position, **entry._asdict()}
            if entry.kind == "commit":
                del row["attempts"]
            yield row


def _nodes(data: bytes) -> Iterator[Row]:
    found = node_list(data)
    if found.cluster:
        yield {"cluster": found.cluster}
    for number, folder in found.folders.items():
        yield {"node": number, "folder": folder}


def _index(base: int, data: bytes, *, times: bool) -> Iterator[Row]:
    form = _TIME_INDEX if times else _INDEX
    whole = len(data) - len(data) % form.size
    zeros = 0
    for slot, (first, second) in enumerate(form.iter_unpack(data[:whole])):
        if (first, second) == (0, 0) and slot:
            zeros += 1
            continue
        if times:
            yield {"entry": slot, "timestamp": first, "offset": base + second}
        else:
            yield {"entry": slot, "offset": base + first, "position": second}
    if zeros:
        yield {"about": f"{zeros} entries of zeros: the file was made larger ahead"}
    if whole != len(data):
        yield {"damage": f"{len(data) - whole} bytes behind the last whole entry"}


def _mark(data: bytes) -> Iterator[Row]:
    slots = states.mark_slots(data)
    newest = states.newest_slot(slots)
    for number, (position, slot) in enumerate(zip(states.MARK_SLOTS, slots, strict=True)):
        if isinstance(slot, Slot):
            yield {"slot": number, "position": position, "newest": slot is newest, **slot._asdict()}
        elif slot is None:
            yield {"slot": number, "position": position, "about": "never written"}
        else:
            yield {"slot": number, "position": position, "damage": str(slot)}

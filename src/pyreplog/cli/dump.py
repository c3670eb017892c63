"""Show the content of a log's files, byte by byte on request: segments, indexes, checkpoints, marks, ids, settings,
snapshots.

PATH is a file, or a folder whose files are shown one after another. An unreadable part is reported with its place,
and the rest is shown. The decoders are those of `replog verify`; nothing is changed. For a broker's files it shows
the same as Kafka's DumpLogSegments. The records of a metadata log (__cluster_metadata) and of its snapshots are shown
decoded, one line each."""

from __future__ import annotations

import argparse
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from pyreplog.cli.metadata_rows import SNAPSHOT_SUFFIXES, is_metadata, metadata_line, metadata_row
from pyreplog.cli.options import EXIT_DAMAGED, EXIT_OK, Parser, add_progress, place
from pyreplog.cli.output import ProgressBar, json_line, printable, put_bytes
from pyreplog.cli.picture import picture_of_batch, picture_of_mark
from pyreplog.cli.reading import check_path
from pyreplog.config import meant
from pyreplog.errors import StorageError, StorageNotFoundError, StoragePermissionError
from pyreplog.system import SystemDisk
from pyreplog.verify import (
    CODEC_NAMES,
    CONTROL_NAMES,
    SIZE_MAX,
    Broken,
    CheckedBatch,
    Malformed,
    PlainRecord,
    TooLarge,
    Unavailable,
    Undecodable,
    Window,
    batch_at,
    batch_records,
    control_type,
    could_be_ours,
    listed,
    old_records_of,
    resume,
    small_file,
    total_size,
)

__all__ = ["HELP", "NAME", "add_arguments", "rows_of_file", "run"]

NAME: Final = "dump"
HELP: Final = "show the bytes of segments, indexes, checkpoints and marks, decoded"

Row = dict[str, Any]


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog dump``."""
    parser.add_argument(
        "path",
        metavar="PATH",
        type=place,
        help="a file of a log, or a folder: a partition's, a root, a cluster's, a broker's",
    )
    parser.add_argument("--records", action="store_true", help="show each record of each batch too")
    parser.add_argument(
        "--picture",
        action="store_true",
        help="draw each batch header and mark slot: its bytes, and what each field says",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per batch, record, entry or damage")
    add_progress(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print every file; exit code 3 where something in them could not be read."""
    path = arguments.path.rstrip("/") or "/"
    if not os.path.isfile(path):
        if os.path.splitext(path)[1] and not os.path.exists(path):
            raise StorageError(errno.ENOENT, f"there is no such file{_near(path)}", path)
        if os.path.exists(path) and not os.path.isdir(path):
            raise StorageError(errno.EINVAL, "this is neither a file of a log nor a folder", path)
        check_path(path, "file or folder")
    disk = SystemDisk()
    damaged = False
    files = 0
    total = os.path.getsize(path) if os.path.isfile(path) else total_size(disk, path)
    progress = ProgressBar("dumped", total=total, forced=arguments.progress, sized=True, beside=True)
    try:
        for file in _files(disk, path):
            files += 1
            if not arguments.json:
                print(printable(file))
            for row in _rows_or_why(
                disk, file, file != path, records=arguments.records, picture=arguments.picture, progress=progress.add
            ):
                damaged = damaged or "damage" in row
                if arguments.json:
                    row.pop("picture", None)
                    print(json_line({"file": file, **row}))
                else:
                    for line in _lines(row):
                        print(printable("  " + line))
    finally:
        progress.close()
        disk.close()
    if not files:
        raise StorageError(errno.ENOENT, "there is no file of a log in this folder", path)
    return EXIT_DAMAGED if damaged else EXIT_OK


def _rows_or_why(disk: SystemDisk, file: str, is_one_of_many: bool, **wanted: Any) -> Iterator[Row]:
    """As :func:`rows_of_file`. That one of many files cannot be read is no reason not to show the others, nor that
    a writer removed it."""
    try:
        yield from rows_of_file(disk, file, **wanted)
    except StorageError as error:
        if not is_one_of_many:
            raise
        if not isinstance(error, StorageNotFoundError):
            yield {"damage": f"it cannot be read: {error}"}


def _near(path: str) -> str:
    """Which file beside ``path`` may be meant, as the end of a sentence."""
    folder, name = os.path.split(os.path.abspath(path))
    return meant(name, os.listdir(folder)) if os.path.isdir(folder) else ""


def _files(disk: SystemDisk, path: str) -> Iterator[str]:
    if os.path.isfile(path):
        yield path
        return
    try:
        names = disk.list(path)
    except StoragePermissionError:
        if could_be_ours(os.path.basename(path)):
            raise
        return  # such as lost+found
    for name in names:
        inner = f"{path}/{name}"
        if os.path.isdir(inner) and not os.path.islink(inner):
            yield from _files(disk, inner)
        elif os.path.isfile(inner) and name not in {
            ".lock",
            "replog.controller.lock",
            "replog.reserve",
        }:  # which hold nothing
            yield inner
    for folder in listed(disk, path).values():  # nodes on other disks
        if os.path.isdir(folder) and not f"{folder}/".startswith(f"{path}/"):
            yield from _files(disk, folder)


def rows_of_file(
    disk: SystemDisk, path: str, *, records: bool = False, picture: bool = False, progress: Any = None
) -> Iterator[Row]:
    """Yield the content of the file at ``path``, one row after another; a row with ``damage`` describes an
    unreadable part and its place."""
    name = os.path.basename(path)
    if name.endswith((".log", *SNAPSHOT_SUFFIXES)) or name.partition("-")[0] == "replog.torn":
        yield from _segment(disk, path, records=records, picture=picture, progress=progress)
        return
    file = disk.open(path)
    try:
        data = bytes(file.read_at(0, file.size()))
    finally:
        file.close()
    if progress is not None:
        progress(len(data))
    for row in small_file(name, data):
        if picture and "slot" in row and "damage" not in row:
            row["picture"] = picture_of_mark(data, int(row["position"]))
        yield row


def _segment(disk: SystemDisk, path: str, *, records: bool, picture: bool, progress: Any) -> Iterator[Row]:
    file = disk.open(path)
    row_of = metadata_row if is_metadata(path) else _record
    try:
        window = Window(file, file.size(), progress)
        position, expected = 0, 0
        while True:
            try:
                batch = batch_at(window, position)
                if batch is None:
                    return
            except Broken as broken:
                after = resume(window, position, expected, broken.size)
                end = after.position if after is not None else window.size
                yield {
                    "position": position,
                    "size": end - position,
                    "damage": broken.reason,
                    "expected_offset": expected,
                }
                if after is None:
                    return
                position = after.position
                continue
            row = _batch(batch)
            if picture and batch.magic == 2:
                row["picture"] = picture_of_batch(batch.data, position)
            yield row
            if (records or row_of is metadata_row) and "damage" not in row:
                yield from _records(batch, row_of)
            expected, position = batch.last_offset + 1, position + batch.size
    finally:
        file.close()


def _batch(batch: CheckedBatch) -> Row:
    row: Row = {
        "position": batch.position,
        "size": batch.size,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.record_count,
        "leader_epoch": batch.leader_epoch,
        "magic": batch.magic,
        "codec": CODEC_NAMES[batch.codec] if batch.codec < len(CODEC_NAMES) else batch.codec,
        "timestamp_type": "LogAppendTime" if batch.is_log_append_time else "CreateTime",
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "crc": batch.crc,
    }
    if batch.producer_id >= 0 or batch.base_sequence >= 0:
        row |= {
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
            "last_sequence": batch.last_sequence,
        }
    if batch.is_transactional:
        row["transactional"] = True
    if batch.is_control:
        row["control"] = True
    if batch.magic == 2 and batch.attributes & 64:
        row["delete_horizon_ms"] = batch.base_timestamp
    if batch.checksum() != batch.crc:
        row["damage"] = f"checksum mismatch: the bytes give {batch.checksum()}"
    return row


def _records(batch: CheckedBatch, row_of: Callable[[CheckedBatch, PlainRecord], Row]) -> Iterator[Row]:
    try:
        if batch.magic < 2:
            found: Iterable[PlainRecord] = old_records_of(batch.data)
        else:
            stored = batch.data[61:]
            found = batch_records(
                batch.codec, stored, batch.record_count, batch.base_offset, batch.base_timestamp, SIZE_MAX
            )
        for record in found:
            yield row_of(batch, record)
    except (Malformed, Undecodable, Unavailable) as error:
        yield {"position": batch.position, "damage": f"the records of this batch: {error}"}
    except TooLarge as error:
        yield {"position": batch.position, "note": f"the records of this batch: {error}"}


def _record(batch: CheckedBatch, record: PlainRecord) -> Row:
    row: Row = {
        "offset": record.offset,
        "timestamp": batch.max_timestamp if batch.is_log_append_time else record.timestamp,
    }
    if batch.is_control:
        kind = control_type(record)
        row["control_type"] = CONTROL_NAMES[kind] if 0 <= kind < len(CONTROL_NAMES) else f"unknown ({kind})"
        return row
    put_bytes(row, "key", record.key)
    put_bytes(row, "value", record.value)
    if record.headers:
        row["headers"] = [put_bytes({"key": key}, "value", value) for key, value in record.headers]
    return row


def _lines(row: Row) -> list[str]:
    """A row for people."""
    row = dict(row)
    picture: list[str] = row.pop("picture", [])
    damage = row.pop("damage", None)
    if "fields" in row:
        line = metadata_line(row)
    elif (
        "offset" in row
        and ("value" in row or "value_base64" in row or "control_type" in row)
        and "base_offset" not in row
    ):
        line = "    " + ", ".join(
            f"{name} {value!r}" if isinstance(value, str) else f"{name} {value}" for name, value in row.items()
        )
    else:
        line = ", ".join(f"{name} {value}" for name, value in row.items())
    lines = [line] if row else []
    if damage is not None:
        lines.append(f"DAMAGED: {damage}")
    return [*lines, *("  " + text for text in picture)]

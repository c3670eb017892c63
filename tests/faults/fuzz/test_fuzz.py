"""Parsers of foreign bytes: whatever they are fed, they answer, or raise the error that they name; never anything
else, never a crash.

A few thousand mutations here, drawn by ``REPLOG_CRASH_SEED``; millions in the soak, on a build with
AddressSanitizer. What was found once is tried every time.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from pyreplog._core import ArrowRows, RecordBatch
from pyreplog.record import records_of
from tests.faults.fuzz.run import Finding, execute, fuzz, keep, main, minimise, regressions
from tests.faults.fuzz.target import Target
from tests.faults.fuzz.targets import TARGETS

SEED = int(os.environ.get("REPLOG_CRASH_SEED", "0"))
TOTAL = 25_000
SHORT_SIZE = 400
"""Bytes of seeds of which every bit is flipped, if one of them alone has not more."""


@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_mutations(target: Target) -> None:
    """Seeds, then mutations of them and of what proved new."""
    fuzz(target, max(TOTAL * target.share // 100, 250), SEED)


@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_cut_and_flipped(target: Target) -> None:
    """Its shortest seeds, cut at every byte and with every bit flipped. A folder takes milliseconds: with each commit
    it meets another part of them."""
    part = 12 if target.name == "folder" else 1
    whole = sorted(target.seeds(), key=len)
    for number, data in enumerate(whole):
        if number and sum(map(len, whole[: number + 1])) > SHORT_SIZE:
            break
        for size in range(SEED % part, len(data), part):
            execute(target, data[:size])
        flipped = bytearray(data)
        for place in range(SEED % part, 8 * len(data), part):
            flipped[place >> 3] ^= 1 << (place & 7)
            execute(target, bytes(flipped))
            flipped[place >> 3] ^= 1 << (place & 7)


@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_what_was_found_once(target: Target) -> None:
    """Every input that was a finding is none any more."""
    for data in regressions(target):
        execute(target, data)


def test_a_planted_bug_is_found_and_minimised() -> None:
    """A parser that cannot bear one combination of bytes: found within some thousand executions, cut to what
    matters."""

    def fragile(data: bytes) -> object:
        if b"\x7f" in data and len(data) > 5:
            raise IndexError("planted")
        return len(data) > 5

    target = Target("planted", lambda: [b"\x00" * 20], fragile, (ValueError,), 1)
    with pytest.raises(Finding) as found:
        fuzz(target, 20_000, 1)
    assert len(found.value.data) == 6
    assert minimise(target, b"\x00\x7f" * 40, IndexError).count(b"\x7f") >= 1


def test_what_is_found_can_be_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The input of a crash is in the file that is named, and the command that is named runs it."""
    target = next(one for one in TARGETS if one.name == "controller")
    data = b'{"version": 0}'
    said = keep(target, data, tmp_path)
    words = said.partition("again: python -m tests.faults.fuzz.run ")[2].partition(";")[0].split()
    assert main(words) == 0
    assert capsys.readouterr().out == f"controller: {execute(target, data)}\n"


def _column(chance: Random, count: int, types: list[pa.DataType]) -> pa.Array:
    kind = types[chance.randrange(len(types))]
    values = [None if chance.random() < 0.2 else "é" * chance.randrange(4) for _ in range(count)]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return pa.array(values, kind)
    return pa.array([None if value is None else value.encode() for value in values], kind)


def test_arrow_tables_of_every_shape() -> None:
    """Tables of any column types, slices, chunks and nulls, in any order: refused with a ValueError or TypeError,
    or each row comes back as it went in."""
    chance = Random(SEED)
    binary = [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.binary_view(), pa.string_view()]
    taken = 0
    for _ in range(150):
        count = chance.randrange(40)
        columns: dict[str, pa.Array] = {"value": _column(chance, count, binary)}
        if chance.random() < 0.6:
            columns["key"] = _column(chance, count, binary)
        if chance.random() < 0.5:
            unit = ("s", "ms", "us", "ns")[chance.randrange(4)]
            columns["timestamp"] = pa.array(
                [chance.choice([None, chance.randrange(-5, 10**9)]) for _ in range(count)], pa.timestamp(unit)
            )
        if chance.random() < 0.5:
            item = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
            lists = [
                [{"key": chance.choice(["h", "", None]), "value": b"x"}] * chance.randrange(3) for _ in range(count)
            ]
            columns["headers"] = pa.array(lists, pa.list_(item))
        names = list(columns)
        chance.shuffle(names)
        table = pa.table({name: columns[name] for name in names}).slice(chance.randrange(3), chance.randrange(40))
        if chance.random() < 0.3 and table.num_rows:
            table = pa.concat_tables([table, table.slice(1)])
        try:
            rows = ArrowRows(table)
            if not rows.row_count or rows.check(1 << 20) < rows.row_count:
                continue
        except (ValueError, TypeError):
            continue
        room = bytearray(1 << 16)
        after, size = rows.encode(0, 5, room)
        records = records_of(RecordBatch(bytes(room[:size])), "t", 0, 0, 2**63 - 1)
        assert len(records) == after == table.num_rows
        for record, value in zip(records, table["value"].to_pylist(), strict=True):
            assert record.value == (value.encode() if isinstance(value, str) else value)
        taken += 1
    assert taken > 20

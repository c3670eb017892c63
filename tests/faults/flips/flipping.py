"""Flip a bit or cut a file, then read and open: what comes out is what was written, a beginning of it, or an error
of this library.

The count of what was tried is kept, for the soak's account.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from random import Random

from pyreplog.errors import PyreplogError
from pyreplog.log import LogRoot
from pyreplog.testing.disk import SimDisk
from tests.faults.flips.golden import CHECKPOINTS, KEY, OWN, ROOT, Content, Golden, files, served
from tests.unit.log.support import CLOCK, raw, size_of


class Account:
    """How many damages were tried, and how each ended."""

    def __init__(self) -> None:
        self.flips = 0
        self.cuts = 0
        self.wrong = 0
        self.outcomes: Counter[str] = Counter()

    def line(self) -> str:
        """For people."""
        ends = ", ".join(
            f"{name} {count:,}" for name, count in sorted(self.outcomes.items(), key=lambda pair: -pair[1])
        )
        return f"{self.flips:,} flips, {self.cuts:,} cuts, {self.wrong} wrong ({ends})"


def uncovered(golden: Golden) -> dict[str, list[tuple[int, int]]]:
    """Byte ranges (start, end) of each file in which nobody can tell a flip, in a folder that has no mark of ours:
    base offset and leader epoch of each batch, as offsets may have gaps and nothing vouches for the epochs, and
    checkpoints, which have no checksum."""
    if golden.name in OWN:
        return {}
    found: dict[str, list[tuple[int, int]]] = {f"{ROOT}/{name}": [(0, 1 << 20)] for name in CHECKPOINTS}
    for path, ends in golden.layout.items():
        for position in [0, *ends[:-1]]:
            found.setdefault(path, []).extend([(position, position + 8), (position + 12, position + 16)])
    return found


def _unseen_lengths(golden: Golden, path: str) -> Collection[int]:
    """Lengths of a file that nobody can tell from its own, in a folder without a mark of ours: where offsets may
    have gaps, a segment that ends with a whole batch may have been cut there, but for the last; and checkpoints."""
    if golden.name in OWN or path == max(golden.layout):
        return ()
    return range(1 << 20) if path.removeprefix(f"{ROOT}/") in CHECKPOINTS else [0, *golden.layout.get(path, ())]


def extent(golden: Golden) -> tuple[int, int]:
    """How many flips and cuts of this folder there are."""
    exempt = uncovered(golden)
    sizes = {path: size_of(golden.disk, path) for path in files(golden.disk)}
    flips = sum(
        8 * (size - sum(max(min(end, size) - start, 0) for start, end in exempt.get(path, ())))
        for path, size in sizes.items()
    )
    return flips, sum(
        size - sum(length in _unseen_lengths(golden, path) for length in range(size)) for path, size in sizes.items()
    )


def sure(golden: Golden, path: str, position: int) -> int:
    """How many batches a reader is given at least, unless it is given an error, with ``path`` damaged from byte
    ``position`` on: all that were closed in order or synced. Where nothing says how far a partition goes, those
    before the damage."""
    if golden.name == "open" and path.endswith("replog.mark"):
        return 0  # what a kill left in the newest slot stands nowhere else
    if golden.name != "bare":
        return len(golden.contents[min(golden.contents)])
    if path not in golden.layout:
        return sum(map(len, golden.layout.values()))
    return sum(
        len(ends) if other < path else sum(end <= position for end in ends)
        for other, ends in golden.layout.items()
        if other <= path
    )


def check(golden: Golden, disk: SimDisk, what: str, *, write: bool, sure: int) -> str:
    """What a reader and, with ``write``, the next writer find on ``disk``, in a word; AssertionError where that is
    wrong.

    ``sure``: so many batches are there for a reader, or an error.
    """
    ends = []
    found = served(disk, probes=golden.probes)
    for key, content in found.items():
        whole = golden.full.get(key)
        if isinstance(content, str):
            ends.append(content)
            continue
        assert whole is not None, f"{what}: a reader finds {key}, which never was"
        assert content == whole[: len(content)], f"{what}: a reader of {key} is given wrong records"
        assert len(content) >= sure, (
            f"{what}: a reader of {key} is given {len(content)} of {sure} batches, and no error"
        )
        ends.append("whole" if content == golden.contents[key] else "part")
    if write:
        ends.append(_written(golden, disk, what))
    return " / ".join(ends) or "nothing"


def _written(golden: Golden, disk: SimDisk, what: str) -> str:
    """The same for the next writer, which may cut what was never vouched for, and nothing else."""
    whole, vouched = golden.full[KEY], golden.contents[KEY]
    try:
        root = LogRoot.open(disk.snapshot(), ROOT, clock=CLOCK, random=Random(5))
    except PyreplogError as error:
        return type(error).__name__
    try:
        if KEY in root.damaged:
            return type(root.damaged[KEY]).__name__
        log = root.logs.get(KEY)
        assert log is not None, f"{what}: a writer finds no partition"
        try:
            found = _content(raw(log))
        except PyreplogError as error:
            return type(error).__name__
        if golden.name == "open":
            # A leader epoch above the mark is nobody's word but the batch's own, and outside its
            # checksum.
            found, whole, vouched = (_without_epochs(content, vouched[-1][1]) for content in (found, whole, vouched))
        assert found == whole[: len(found)], f"{what}: a writer finds wrong records"
        assert len(found) >= len(vouched), f"{what}: a writer took {len(vouched) - len(found)} batches away"
        return "whole" if found == whole else "cut"
    finally:
        root.close(clean=False)


def _content(data: bytes) -> Content:
    from pyreplog.record import split  # noqa: PLC0415  (only here)

    batches = split(data)
    for one in batches:
        one.check_crc()  # as whoever is given them does, before a record is shown
    return tuple((one.base_offset, one.next_offset, bytes(one.data)) for one in batches)


def _without_epochs(content: Content, start: int) -> Content:
    return tuple((base, end, data if base < start else data[:12] + data[16:]) for base, end, data in content)


def flip_all(
    golden: Golden, account: Account, *, share: int = 1, seed: int = 0, part: tuple[int, int] = (0, 1)
) -> Iterator[None]:
    """Flip every bit of every file, or every ``share``-th by chance, one at a time; yields after each file, so that
    others may stop it.

    ``part``: (number, of how many) equal parts to do.
    """
    chance = Random(f"{golden.name} {seed}")
    disk = golden.disk.snapshot()
    exempt = uncovered(golden)
    writes = golden.name in OWN and golden.name != "cluster"
    for path in files(disk):
        ranges = exempt.get(path, [])
        for position in range(size_of(disk, path)):
            for bit in range(8):
                if (8 * position + bit) % part[1] != part[0] or (share > 1 and chance.randrange(share)):
                    continue
                if any(start <= position < end for start, end in ranges):
                    account.outcomes["not covered"] += 1
                    continue
                account.flips += 1
                disk.flip(path, position, 1 << bit)
                what = f"{golden.name}: bit {bit} of byte {position} of {path} flipped"
                try:
                    account.outcomes[check(golden, disk, what, write=writes, sure=sure(golden, path, position))] += 1
                except AssertionError:
                    account.wrong += 1
                    raise
                disk.flip(path, position, 1 << bit)
        yield


def cut_all(
    golden: Golden, account: Account, *, share: int = 1, seed: int = 0, part: tuple[int, int] = (0, 1)
) -> Iterator[None]:
    """Cut every file at every length, or at every ``share``-th by chance; yields after each file. ``part``: as in
    :func:`flip_all`."""
    chance = Random(f"{golden.name} {seed}")
    writes = golden.name in OWN and golden.name != "cluster"
    for path in files(golden.disk):
        boundaries = _unseen_lengths(golden, path)
        for size in range(size_of(golden.disk, path)):
            if size % part[1] != part[0] or (share > 1 and chance.randrange(share)):
                continue
            if size in boundaries:
                account.outcomes["not covered"] += 1
                continue
            disk = golden.disk.snapshot()
            file = disk.open(path, write=True)
            file.truncate(size)
            file.close()
            account.cuts += 1
            what = f"{golden.name}: {size} bytes left of {path}"
            try:
                account.outcomes[check(golden, disk, what, write=writes, sure=sure(golden, path, size))] += 1
            except AssertionError:
                account.wrong += 1
                raise
        yield

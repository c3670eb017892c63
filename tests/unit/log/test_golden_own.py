"""Row 47 of the fault table, as far as files go: what an earlier version wrote is read, and the version of today
writes the same bytes."""

from __future__ import annotations

from random import Random

import pytest

from pyreplog.controller import decode, encode
from pyreplog.log.clean_shutdown import read_farewell, read_incarnation
from pyreplog.log.mark import read_mark
from pyreplog.log.settings import read_config
from pyreplog.log.snapshot import parse_state
from pyreplog.log.summary import checked, decode_body, encode_key
from pyreplog.spool.manifest import Manifest
from pyreplog.spool.staged import read_staged
from pyreplog.testing.disk import SimDisk
from pyreplog.verify import verify
from tests.faults.flips.golden import KEY, ROOT, golden, served
from tests.interop.golden import own

VERSIONS = sorted(path.name for path in own.FOLDER.iterdir())


def test_row_47_the_same_bytes_are_written() -> None:
    """Mark, incarnation, settings, marker, checkpoints, controller's state, spool, summary: whoever changes a byte
    gives it a version."""
    assert own.kept(own.VERSION) == own.written()


@pytest.mark.parametrize("name", ["own", "open"])
@pytest.mark.parametrize("version", VERSIONS)
def test_row_47_an_earlier_root_is_read(version: str, name: str) -> None:
    """Read, verified and opened: all that was in it, with its settings, its mark and its life."""
    disk = own.as_root(own.kept(version), name)
    assert served(disk) == golden(name).contents
    assert not verify(disk, ROOT).findings or name == "open"
    mark, settings, life = (
        read_mark(disk, f"{ROOT}/t-0"),
        read_config(disk, f"{ROOT}/t-0"),
        read_incarnation(disk, ROOT),
    )
    assert mark is not None
    assert mark.durability == "sync"
    assert settings is not None
    assert settings.segment_bytes == 1024
    assert life is not None
    assert life.incarnation_id
    farewell = read_farewell(disk, ROOT)
    assert (farewell is not None and farewell.incarnation_id == life.incarnation_id) == (name == "own")
    root = own.opened(disk)
    assert not root.damaged
    assert root.clean == (name == "own")
    assert root.logs[KEY].end_offset >= golden(name).contents[KEY][-1][1]
    root.close(clean=False)


@pytest.mark.parametrize("version", VERSIONS)
def test_row_47_earlier_states_are_read(version: str) -> None:
    """The controller's state, a summary's entry, a manifest and what it names."""
    found = own.kept(version)
    state = decode(found["replog.controller"], "x")
    assert encode(state) == encode(own.controller())
    entry = found["summary.entry"]
    assert checked(encode_key(own.KEY), own.GENERATION, entry)
    assert decode_body(entry[4:]) == own.SUMMARY
    manifest = next(
        Manifest.from_values(parse_state(data, "x"), "x") for path, data in found.items() if path.endswith(".manifest")
    )
    assert manifest.batch_id == own.BATCH
    disk = SimDisk(Random(1))
    disk.make_directory(ROOT)
    file = disk.create(f"{ROOT}/{manifest.files[0].name}")
    file.write_at(0, [found[f"spool/{manifest.files[0].name}"]])
    file.close()
    assert [(str(one.topic_partition), one.record_count) for one in read_staged(disk, ROOT, manifest.files[0])] == [
        ("t-0", 2),
        ("u-3", 1),
    ]

"""A class name means one thing in the whole package."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from tests.house.sources import CORE_SOURCES, PACKAGE, modules, tree, where

FACES = {
    "Admin",
    "Cluster",
    "ClusterNode",
    "ClusterReader",
    "ClusterTable",
    "Consumer",
    "Log",
    "NamedConsumer",
    "Producer",
    "Queue",
    "ReaderConsumer",
    "ReassignmentHandle",
    "Table",
}
"""Public names that have a machine, a blocking and an asyncio form."""


def test_a_class_name_means_one_thing() -> None:
    """No two classes of the package have one name, except the forms of a public one."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(where(path, node))
    for path in sorted(CORE_SOURCES.glob("*.pyx")):
        for name in re.findall(r"^(?:cdef )?class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            found[name].append(path.name)
    twice = {name: places for name, places in found.items() if len(places) > 1 and name not in FACES}
    assert not twice
    assert PACKAGE.is_dir()

"""Every numbered edge case has its test, which its number finds."""

from __future__ import annotations

import ast
import re

from tests.house.sources import ROOT, tree, where

LAST = 116
ELSEWHERE = {110: "the cleaner", 111: "what it cleans"}
"""What is about compaction, which is not here."""

NAME = re.compile(r"test_e(\d{3})_[a-z]")


def _checks(function: ast.FunctionDef) -> bool:
    """Whether it asserts anything by itself."""
    return any(
        isinstance(node, ast.Assert) or (isinstance(node, ast.Attribute) and node.attr == "raises")
        for node in ast.walk(function)
    )


def _returns_early(function: ast.FunctionDef) -> bool:
    """Whether it may end before its end: such a test passes without a word."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return):
            return True
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return False


def test_every_number_is_found() -> None:
    """``pytest tests/interop/edges -k e064`` runs the test of number 64; so it is for each but those about compaction,
    and for no other number."""
    found: dict[int, list[str]] = {}
    for path in sorted((ROOT / "tests" / "interop" / "edges").glob("test_*.py")):
        for node in tree(path).body:
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
                continue
            match = NAME.match(node.name)
            assert match is not None, f"{where(path, node)}: {node.name} has no number"
            assert ast.get_docstring(node), f"{where(path, node)} does not say what must hold"
            assert _checks(node), f"{where(path, node)} asserts nothing"
            assert not _returns_early(node), f"{where(path, node)} may pass without having looked"
            found.setdefault(int(match[1]), []).append(node.name)
    assert sorted([*found, *ELSEWHERE]) == list(range(1, LAST + 1))

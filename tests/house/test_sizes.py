"""Small files, short functions. The limits are generous: they catch the file in the middle that swallows the
design."""

from __future__ import annotations

import ast
import statistics

from tests.house.sources import CORE_SOURCES, modules, tree, where

FILE_LINES_MAX = 950
FUNCTION_LINES_MAX = 120
PARAMETERS_MAX = 14
TABLES = {"schemas.py"}
FACES = {"open_log"}
"""Public functions that may take more parameters, and whose docstring alone may make them long: every parameter is one
of its own, and most callers name one or two."""


def test_files_stay_small() -> None:
    """No source file but a table of declarations is longer than 950 lines, and half of them have fewer than 300."""
    files = [path for path in modules() if path.read_text()] + [
        p for p in sorted(CORE_SOURCES.rglob("*")) if p.suffix in {".pyx", ".c", ".h"}
    ]
    lines = {path: len(path.read_text().splitlines()) for path in files}
    too_long = [
        f"{where(path, 1)}: {count} lines"
        for path, count in lines.items()
        if count > FILE_LINES_MAX and path.name not in TABLES
    ]
    assert not too_long
    assert statistics.median(lines.values()) < 300


def test_functions_fit_a_screen_or_two() -> None:
    """No function but a public face has more than 120 lines or more than 14 parameters."""
    found = []
    for path in modules():
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            count = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)
            if node.name not in FACES and (length > FUNCTION_LINES_MAX or count > PARAMETERS_MAX):
                found.append(f"{where(path, node)} {node.name}: {length} lines, {count} parameters")
    assert not found


def test_modules_say_what_they_are() -> None:
    """Every module has a docstring, and so has every public class and function."""
    found = []
    for path in modules():
        module = tree(path)
        if not module.body:
            continue
        if ast.get_docstring(module) is None:
            found.append(where(path, 1))
        for node in module.body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if not node.name.startswith("_") and ast.get_docstring(node) is None:
                found.append(f"{where(path, node)} {node.name}")
    assert not found, "\n".join(found)

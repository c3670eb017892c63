"""Small files, short functions, few parameters."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

from tests.house.sources import CORE_SOURCES, PACKAGE, modules, tree, where

FILE_LINES_MAX = 600
CORE_LINES_MAX = 900
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 8
TABLES = {"wire/schemas.py", "wire/admin_schemas.py", "wire/peer_schemas.py", "wire/metadata.py", "errors.py"}
"""Tables of declarations, which may be longer: Kafka's messages, and the errors."""
FACES = {
    "runtime/log.py open_log",
    "runtime/several.py scan",
    "runtime/cluster.py __init__",
    "runtime/cluster.py consumer",
    "runtime/cluster.py producer",
    "runtime/producer.py send",
    "aio/clients.py send",
    "aio/log.py open_log",
    "aio/several.py scan",
    "arrow.py __init__",
}
"""Public faces that may take more parameters, because each is of its own and most callers name one or two. Their text
may also make them longer than others."""
MESSAGES = {"wire/schemas.py", "wire/admin_schemas.py", "wire/peer_schemas.py", "wire/metadata.py"}
"""Kafka's messages have as many fields as Kafka gives them."""


def named(path: Path) -> str:
    """Return the path of a module within the package."""
    return path.relative_to(PACKAGE).as_posix()


def test_files_stay_small() -> None:
    """No Python file but a table of declarations has more than 600 lines, no file of the core more than 900, and half
    of them have fewer than 300."""
    limits = {path: FILE_LINES_MAX for path in modules() if path.read_text() and named(path) not in TABLES}
    limits |= {
        path: CORE_LINES_MAX for path in sorted(CORE_SOURCES.rglob("*")) if path.suffix in {".pyx", ".pxd", ".c", ".h"}
    }
    lines = {path: len(path.read_text().splitlines()) for path in limits}
    assert not [f"{where(path, 1)}: {count} lines" for path, count in lines.items() if count > limits[path]]
    assert statistics.median(lines.values()) < 300


def test_functions_fit_a_screen() -> None:
    """No function has more than 60 lines or more than 8 parameters besides self, except public faces and messages;
    what ``pyreplog.testing`` offers may have more parameters."""
    found = []
    for path in modules():
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or f"{named(path)} {node.name}" in FACES:
                continue
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = len(arguments) - bool(arguments and arguments[0].arg in {"self", "cls"})
            many = count > PARAMETERS_MAX and named(path) not in MESSAGES and not named(path).startswith("testing/")
            if length > FUNCTION_LINES_MAX or many:
                found.append(f"{where(path, node)} {node.name}: {length} lines, {count} parameters")
    assert not found


def test_no_exemption_is_left_over() -> None:
    """Each named table and face exists, and needs its exemption."""
    for name in TABLES - MESSAGES:
        assert len((PACKAGE / name).read_text().splitlines()) > FILE_LINES_MAX, name
    for face in FACES:
        path, _, function = face.partition(" ")
        counts = [
            len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs])
            for node in ast.walk(tree(PACKAGE / path))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function
        ]
        assert max(counts) > PARAMETERS_MAX + 1, face


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

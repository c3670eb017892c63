"""What the code may not do, because it would make a run unrepeatable, hide an error, or run foreign bytes."""

from __future__ import annotations

import ast
import re

from tests.house.sources import PACKAGE, PURE, ROOT, dotted, modules, tracked_files, tree, where

UNREPEATABLE = {
    "id": "differs from run to run",
    "hash": "differs from process to process (PYTHONHASHSEED)",
    "os.urandom": "take a Random of ports",
    "uuid4": "draw ids from a Random of ports",
    "uuid.uuid4": "draw ids from a Random of ports",
    "datetime.now": "take a Clock of ports",
    "datetime.datetime.now": "take a Clock of ports",
    "datetime.utcnow": "take a Clock of ports",
    "date.today": "take a Clock of ports",
}
RUNS_FOREIGN_BYTES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "code"}


def test_the_middle_is_repeatable() -> None:
    """From ``record`` to ``client`` nothing depends on chance, time or the process."""
    found = [
        f"{where(path, node)} {dotted(node.func)}: {UNREPEATABLE[dotted(node.func)]}"
        for path in modules(*PURE)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and dotted(node.func) in UNREPEATABLE
    ]
    assert not found


def test_the_middle_never_iterates_a_set() -> None:
    """A loop over a set written down in place would follow the hash seed; sort it or use a dict."""
    found = []
    for path in modules(*PURE):
        for node in ast.walk(tree(path)):
            iterated = [node.iter] if isinstance(node, ast.For) else []
            if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
                iterated = [part.iter for part in node.generators]
            for source in iterated:
                call = isinstance(source, ast.Call) and dotted(source.func) in {"set", "frozenset"}
                if call or isinstance(source, ast.Set | ast.SetComp):
                    found.append(where(path, node))
    assert not found


def test_chance_is_passed_in() -> None:
    """No module uses the functions of the module ``random``, which share one hidden generator: only its classes."""
    found = []
    for path in modules():
        imported = any(
            isinstance(node, ast.Import) and any(alias.name == "random" for alias in node.names)
            for node in ast.walk(tree(path))
        )
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module == "random":
                found += [where(path, node) for alias in node.names if alias.name not in {"Random", "SystemRandom"}]
            if imported and isinstance(node, ast.Attribute) and dotted(node).startswith("random."):
                found += [where(path, node)] if dotted(node) not in {"random.Random", "random.SystemRandom"} else []
    assert not found


def test_nothing_runs_foreign_bytes() -> None:
    """No pickle, marshal or shelve, no eval and exec."""
    found = []
    for path in modules():
        for node in ast.walk(tree(path)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            if any(name.split(".")[0] in RUNS_FOREIGN_BYTES for name in names):
                found.append(where(path, node))
            # Schemas of our own are compiled to functions once, at import: the text comes from our
            # table, never from outside.
            if (
                isinstance(node, ast.Call)
                and dotted(node.func) in {"eval", "exec"}
                and path != PACKAGE / "wire" / "codec.py"
            ):
                found.append(where(path, node))
    assert not found


def test_errors_are_not_swallowed() -> None:
    """No bare ``except`` anywhere; ``except Exception`` only where a face meets foreign code: runtime, command,
    Spark, testing."""
    wide = {"Exception", "BaseException"}
    faces = {"runtime", "cli", "spark", "testing"}
    found = []
    for path in modules():
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.ExceptHandler):
                continue
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            names = {dotted(kind) for kind in kinds if kind is not None}
            # Catching everything to clean up and raise again hides nothing, nor does handing it to
            # whoever waits for a future.
            raises = any(
                (isinstance(part, ast.Raise) and part.exc is None)
                or (
                    isinstance(part, ast.Call)
                    and isinstance(part.func, ast.Attribute)
                    and part.func.attr == "set_exception"
                )
                for part in ast.walk(node)
            )
            first = path.relative_to(PACKAGE).parts[0]
            if node.type is None or (names & wide and not raises and first not in faces):
                found.append(where(path, node))
    assert not found


def test_no_unfinished_words() -> None:
    """What is not built is absent: no marks of unfinished work, no stub that only raises."""
    words = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK|Not" + r"ImplementedError)\b")
    found = [
        where(path, number)
        for path in tracked_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if words.search(line)
    ]
    assert not found, "\n".join(found)


def test_texts_speak_of_the_project() -> None:
    """No path of somebody's machine in code, docs or tests."""
    places = re.compile(r"(/wo" + r"rk/|/ho" + r"me/\w+/|/Us" + r"ers/\w+/)")
    found = [
        where(path, number)
        for path in tracked_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if places.search(line)
    ]
    assert not found, "\n".join(found)
    assert (ROOT / "LICENSE").is_file()

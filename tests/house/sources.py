"""Where the project's files are, and what the house tests read of them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "pyreplog"
CORE_SOURCES = ROOT / "src" / "_core"

#: The layers that reach time, disk, network, threads and chance only through ``pyreplog.ports``.
PURE = ("record", "log", "wire", "replica", "quorum", "controller", "node", "client", "readers", "spool")


def modules(*layers: str) -> Iterator[Path]:
    """Every Python file of the package, or of the named layers only, in a fixed order."""
    for path in sorted(PACKAGE.rglob("*.py")):
        first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if not layers or first in layers:
            yield path


def compiled_modules() -> list[str]:
    """What setup.py has mypyc compile: ``replica/leader`` and the others, without their endings."""
    for node in tree(ROOT / "setup.py").body:
        if isinstance(node, ast.Assign) and dotted(node.targets[0]) == "COMPILED":
            layers: dict[str, str] = ast.literal_eval(node.value)
            return [str(Path(layer, name)) for layer, names in layers.items() for name in names.split()]
    raise AssertionError("setup.py names no COMPILED")


@functools.cache
def tree(path: Path) -> ast.Module:
    """The parsed file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def where(path: Path, node: ast.AST | int) -> str:
    """``src/pyreplog/x.py:12``: what an editor can jump to."""
    line = node if isinstance(node, int) else getattr(node, "lineno", 0)
    return f"{path.relative_to(ROOT)}:{line}"


def dotted(node: ast.expr) -> str:
    """``a.b.c`` of a chain of names, else an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        left = dotted(node.value)
        return f"{left}.{node.attr}" if left else ""
    return ""


def tracked_files() -> list[Path]:
    """The project's own text files: no builds, no environments, no packed data."""
    skipped = {".git", ".venv", "build", "dist", "_build", "__pycache__", "golden"}
    kinds = {".py", ".pyi", ".pyx", ".pxd", ".c", ".h", ".md", ".toml", ".txt", ".cfg"}
    return [
        path
        for path in sorted(ROOT.rglob("*"))
        if path.is_file()
        and (path.suffix in kinds or path.name == "Makefile")
        and not any(
            part in skipped or part.startswith(".") or part.endswith(".egg-info")
            for part in path.relative_to(ROOT).parts
        )
    ]

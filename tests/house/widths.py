"""Which lines are too wide: code above 120 columns, comments and Markdown prose above 100."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.house.sources import CORE_SOURCES, ROOT

CODE_MAX = 120
PROSE_MAX = 100
GENERATED = {ROOT / "docs" / "reference", CORE_SOURCES / "kernels" / "crc32c_table.h"}
"""Files that a program writes."""
_COMMENT = re.compile(r"\s*#(?!!|:? *noqa| *type:| *distutils:| *cython:)|\s*/\*|\s\*[ /]|\s*//")
_UNBREAKABLE = re.compile(r"https?://|\]\([^)]*\)|\S{90,}")
_LONE_STRING = re.compile(r"""\s*b?(["'])\S+\1,?""")
_PRAGMA = re.compile(r" +# (?:type: |noqa\b|pragma: ).*")
"""Instructions to tools, which the formatter does not count either."""
_MARKUP = re.compile(r"\s*(?:\||<|!|\[[^\]]+\]:|#|:::|```)")


def sources() -> list[Path]:
    """Every file of code or Markdown that people write, also outside the package."""
    found = [ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md", "setup.py")]
    for folder in ("src", "tests", "benchmarks", "docs", ".ci"):
        found += [path for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]
    wanted = {".py", ".pyi", ".pyx", ".pxd", ".c", ".h", ".md"}
    return [path for path in found if path.suffix in wanted and not GENERATED & {path, *path.parents}]


def code(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Yield (line number, limit) of each line of code or comment that is too wide. A string without spaces on a line
    of its own may be wider."""
    in_comment = False
    for number, line in enumerate(lines, 1):
        is_comment = in_comment or _COMMENT.match(line) is not None
        limit = PROSE_MAX if is_comment and not _UNBREAKABLE.search(line) else CODE_MAX
        if len(_PRAGMA.sub("", line)) > limit and "distutils:" not in line and not _LONE_STRING.fullmatch(line):
            yield number, limit
        if is_comment and "/*" in line and "*/" not in line:
            in_comment = True
        elif "*/" in line:
            in_comment = False


def markdown(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Yield (line number, limit) of each line of prose that is too wide. Tables, code and links may be wider."""
    fence = ""
    for number, line in enumerate(lines, 1):
        begins = re.match(r"\s*(```+|:::+)", line)
        if begins and not fence:
            fence = begins[1]
        elif fence:
            fence = "" if line.strip() == fence else fence
        elif len(line) > PROSE_MAX and not _MARKUP.match(line) and not _UNBREAKABLE.search(line):
            yield number, PROSE_MAX


def too_wide() -> list[str]:
    """Return each line that is too wide, with its place."""
    found = []
    for path in sources():
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, limit in markdown(lines) if path.suffix == ".md" else code(lines):
            found.append(f"{path.relative_to(ROOT)}:{number}: {len(lines[number - 1])} columns, at most {limit}")
    return found


if __name__ == "__main__":
    wide = too_wide()
    print("\n".join(wide))
    sys.exit(1 if wide else 0)

"""Which text of the project is prose, and how often it uses turns of phrase that readers stumble over."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.house.sources import CORE_SOURCES, PACKAGE, ROOT

FIRST = re.compile(
    r"\b(?:who|whoever|nobody|somebody|anybody"
    r"|what (?:is|was|it|they|are|were|has|had)"
    r"|where (?:it|there|no|a|an|one|they|none)"
    r"|anew|meanwhile"
    r"|(?:is|are|was|were) to (?!the\b|a\b|an\b|its\b|their\b|this\b|that\b|one\b|[0-9])[a-z]+"
    r"|of which)\b",
    re.IGNORECASE,
)
SECOND = re.compile(
    r"\b(?:what (?:a|the|this|comes|can|may|must|lies|goes|needs)"
    r"|no one|everyone|someone|anyone|whichever|those who|one that"
    r"|by then|of late|hears of|is told|gives way|to be had)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_SPEAKING = {"debug", "info", "warning", "error", "exception", "critical", "log"}


class Rates(NamedTuple):
    """How many words a text has, and how many phrases of each list."""

    words: int
    first: int
    second: int

    @property
    def per_1000(self) -> tuple[float, float]:
        """(phrases of the first list, of the second list) per 1,000 words."""
        return (1000 * self.first / self.words, 1000 * self.second / self.words) if self.words else (0.0, 0.0)

    def __add__(self, other: object) -> Rates:
        assert isinstance(other, Rates)
        return Rates(self.words + other.words, self.first + other.first, self.second + other.second)


def rates(text: str) -> Rates:
    """Count the words and phrases of ``text``. Code in backticks does not count."""
    plain = re.sub(r"``[^`]*``|`[^`]*`|:\w+:`[^`]*`", " ", text)
    plain = re.sub(r"\s+", " ", plain)
    return Rates(len(_WORD.findall(plain)), len(FIRST.findall(plain)), len(SECOND.findall(plain)))


def markdown(text: str) -> str:
    """The prose of a Markdown page: without code blocks, link targets and HTML comments."""
    text = re.sub(r"^```.*?^```\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    return re.sub(r"\]\([^)]*\)", "]", text)


def _is_speaking(node: ast.AST) -> bool:
    if isinstance(node, ast.Raise):
        return True
    if isinstance(node, ast.Call):
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        return (
            (name in _SPEAKING and isinstance(called, ast.Attribute))
            or name.endswith(("Error", "Warning"))
            or name in {"add_argument", "print", "warn", "damage", "note"}
        )
    return False


def python(path: Path) -> str:
    """The prose of a Python file: docstrings, comments, and the texts of exceptions, log calls and help."""
    source = path.read_text(encoding="utf-8")
    said: list[str] = []
    module = ast.parse(source)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("# type:", "# noqa", "#!")):
            said.append(token.string.lstrip("#: "))
    told: dict[int, str] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            said.append(node.value.value)  # docstrings, also of attributes
        elif _is_speaking(node):
            for one in ast.walk(node):
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    told[id(one)] = one.value
    return "\n".join([*said, *told.values()])


def cython(path: Path) -> str:
    """The prose of a Cython or C file: its comments and docstrings."""
    source = path.read_text(encoding="utf-8")
    said = re.findall(r'"""(.*?)"""', source, re.DOTALL) + re.findall(r"/\*(.*?)\*/", source, re.DOTALL)
    said += re.findall(
        r"(?:^|\s)#(?!include|define|if|endif|else|elif|undef|pragma|error)\s?(.*)$", source, re.MULTILINE
    )
    said += re.findall(r"//(.*)$", source, re.MULTILINE)
    return "\n".join(said)


def prose(path: Path) -> str:
    """The prose of one file of the project."""
    if path.suffix == ".md":
        return markdown(path.read_text(encoding="utf-8"))
    if path.suffix in {".py", ".pyi"}:
        return python(path)
    return cython(path)


def sources() -> list[Path]:
    """The files of ``src`` that hold prose."""
    found = [*PACKAGE.parent.glob("*/**/*.py"), *PACKAGE.rglob("*.pyi"), *CORE_SOURCES.rglob("*")]
    kinds = {".py", ".pyi", ".pyx", ".pxd", ".c", ".h", ".md"}
    return sorted({path for path in found if path.suffix in kinds and path.name != "crc32c_table.h"})


def pages() -> list[Path]:
    """README, the change log and the pages of ``docs``; its programs too."""
    docs = [path for path in (ROOT / "docs").rglob("*") if path.suffix in {".md", ".py"} and "_build" not in path.parts]
    return sorted([*ROOT.glob("*.md"), *docs])


def phrases(text: str) -> Iterator[str]:
    """Each phrase of either list, with the words around it."""
    plain = re.sub(r"\s+", " ", re.sub(r"``[^`]*``|`[^`]*`|:\w+:`[^`]*`", " ", text))
    for pattern in (FIRST, SECOND):
        for match in pattern.finditer(plain):
            before, after = plain[max(0, match.start() - 45) : match.start()], plain[match.end() : match.end() + 45]
            yield f"    {before}[{match[0]}]{after}"


def main() -> None:
    """Print all files with their rates, worst first; of the files that are named, each phrase too."""
    named = [Path(name).resolve() for name in sys.argv[1:]]
    rows = [(rates(prose(path)), path) for path in named or [*sources(), *pages()]]
    for found, path in sorted(rows, key=lambda row: -sum(row[0].per_1000)):
        first, second = found.per_1000
        print(f"{first:5.1f} {second:5.1f} {found.words:6d}  {path.relative_to(ROOT)}")
        for line in phrases(prose(path)) if named else ():
            print(line)
    for name, group in (("src", sources()), ("docs", pages())):
        total = Rates(0, 0, 0)
        for path in group:
            total = total + rates(prose(path))
        print(f"{name}: {total.per_1000[0]:.1f} and {total.per_1000[1]:.1f} per 1,000 of {total.words} words")


if __name__ == "__main__":
    main()

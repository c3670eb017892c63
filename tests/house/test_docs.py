"""The pages say what the code does: examples run, references are generated, links lead somewhere."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

import pytest

import pyreplog
from pyreplog.controller.election import ReplicaEnd
from pyreplog.controller.state import decode, encode
from pyreplog.spark.options import IGNORED_OPTIONS, READ_OPTIONS
from pyreplog.spark.query_lag import Lag
from pyreplog.spark.sink_options import WRITE_OPTIONS
from pyreplog.values import BackupProgress, RecoveryProgress
from tests.house.sources import PACKAGE, ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted((DOCS / "guide").glob("*.md"))]
LINKED = [path for path in [*ROOT.glob("*.md"), *sorted(DOCS.rglob("*.md"))] if "_build" not in path.parts]
MARK = "\x1e"
END = "\x1d"
PAGE_SECONDS_MAX = 110
SPARK_PAGES_SECONDS_MAX = 290


def script(page: Path) -> tuple[str, dict[int, str]]:
    """The page's ``python`` blocks as one program whose line numbers are the page's, and the output shown after
    each (by its last line).

    Foreign code is fenced as ``py``, which is not run.
    """
    lines = page.read_text(encoding="utf-8").splitlines()
    program = [""] * len(lines)
    shown: dict[int, str] = {}
    language, start, block_end = "", 0, 0
    for number, line in enumerate(lines):
        fence = re.fullmatch(r"```(\w*)\s*", line)
        if fence is None:
            if language == "python":
                program[number] = line
            elif not language and line.strip():
                block_end = 0
        elif language:
            if language == "python":
                program[number], block_end = f"print('{MARK}{number}')", number
            elif language == "text" and block_end:
                shown[block_end], block_end = "\n".join(lines[start + 1 : number]), 0
            language = ""
        else:
            language, start = fence.group(1) or "plain", number
            if language not in {"text", "python"}:
                block_end = 0
    return "\n".join(program), shown


def uses_spark(page: Path) -> bool:
    """Whether a JVM has to start for it."""
    return "spark" in page.stem or "SparkSession" in page.read_text(encoding="utf-8")


RUNNABLE = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]
PLAIN = [page for page in RUNNABLE if not uses_spark(page)]
SPARK = [page for page in RUNNABLE if uses_spark(page)]
TWICE = [ROOT / "README.md", DOCS / "tutorial.md", DOCS / "coming-from-kafka.md"]
"""The pages that a newcomer pastes into a folder of their own, more than once."""

ONE_AFTER_ANOTHER = """
import pathlib, runpy, shutil, sys

for program in sys.argv[2:]:
    runpy.run_path(program, run_name="__main__")
    print(end=sys.argv[1], flush=True)
    for entry in pathlib.Path().iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
"""
"""Each program in the folder as the first one found it: empty. What one of them raises ends all of it."""


def outputs(pages: list[Path], folder: Path, seconds: float) -> dict[Path, str]:
    """What the pages' programs print, run by one interpreter: its JVM, if it needs one, starts once."""
    programs = [folder / f"{page.stem}.py" for page in pages]
    for page, program in zip(pages, programs, strict=True):
        program.write_text(script(page)[0], encoding="utf-8")
    here = folder / "here"
    here.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")])),
    }
    command = [sys.executable, "-c", ONE_AFTER_ANOTHER, END, *map(str, programs)]
    done = subprocess.run(
        command, cwd=here, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return dict(zip(pages, done.stdout.split(END)[:-1], strict=True))


def holds_what_it_shows(page: Path, output: str) -> None:
    """The program came to its end, and printed exactly the ``text`` block below each ``python`` block where there
    is one."""
    program, shown = script(page)
    printed: dict[int, str] = {}
    text = ""
    for line in output.split("\n"):
        if MARK in line:
            text += line.partition(MARK)[0]
            printed[int(line.partition(MARK)[2])], text = text.strip("\n"), ""
        else:
            text += line + "\n"
    assert len(printed) == program.count(MARK), f"{page.name}: {output}"
    for number, expected in shown.items():
        assert printed[number] == expected, f"{page.name}:{number + 1}"


@pytest.fixture(scope="module")
def spark_outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, str]:
    """Of all pages that use Spark."""
    return outputs(SPARK, tmp_path_factory.mktemp("spark-pages"), SPARK_PAGES_SECONDS_MAX)


@pytest.mark.parametrize("page", [page for page in PLAIN if page not in TWICE], ids=lambda page: page.name)
def test_examples_run_and_print_what_the_page_says(page: Path, tmp_path: Path) -> None:
    """Every ``python`` block runs, in the page's order, in a process of its own."""
    holds_what_it_shows(page, outputs([page], tmp_path, PAGE_SECONDS_MAX)[page])


@pytest.mark.parametrize("page", TWICE, ids=lambda page: page.name)
def test_the_first_pages_run_twice_in_one_folder(page: Path, tmp_path: Path) -> None:
    """The examples print what the page says, and a reader may run them again in the same folder: both runs end with
    exit code 0."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")])),
    }
    command = [sys.executable, "-c", script(page)[0]]
    for turn in ("first", "second"):
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PAGE_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"the {turn} run: {done.stderr}"
        if turn == "first":
            holds_what_it_shows(page, done.stdout)


@pytest.mark.spark
@pytest.mark.timeout(SPARK_PAGES_SECONDS_MAX + 10)
@pytest.mark.parametrize("page", SPARK, ids=lambda page: page.name)
def test_examples_with_spark_run_and_print_what_the_page_says(page: Path, spark_outputs: dict[Path, str]) -> None:
    """As above; these share a process, in folders of their own."""
    holds_what_it_shows(page, spark_outputs[page])


@pytest.mark.parametrize("name", ["tutorial.md", "coming-from-sqlite.md"])
def test_commands_run_where_the_examples_left_off(name: str, tmp_path: Path) -> None:
    """The ``sh`` blocks of a page, after its Python and in the same folder: no command fails or complains, and none
    finds nothing to do."""
    text = (DOCS / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks
    if any(block.startswith("sqlite3 ") for block in blocks) and shutil.which("sqlite3") is None:
        pytest.skip("needs the command sqlite3")
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }
    for words in ([sys.executable, "-c", script(DOCS / name)[0]], *(["sh", "-e", "-c", block] for block in blocks)):
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PAGE_SECONDS_MAX, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        assert " 0 records" not in done.stdout


def generator() -> ModuleType:
    """``docs/generate.py`` as a module."""
    spec = importlib.util.spec_from_file_location("generate_docs", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["api.md", "cli.md", "config.md", "errors.md", "metrics.md"])
def test_reference_pages_are_the_codes(name: str) -> None:
    """A generated page is what ``python docs/generate.py`` writes now."""
    assert (DOCS / "reference" / name).read_text(encoding="utf-8") == generator().pages()[name], (
        "run: python docs/generate.py"
    )


def test_every_metric_is_on_its_page() -> None:
    """Each field of what a public ``stats()`` gives, of what ``progress`` is told and of a query's lag, with its
    unit and a meaning."""
    kinds: set[type] = {RecoveryProgress, BackupProgress, Lag}
    for thing in vars(pyreplog).values():
        if inspect.isclass(thing) and hasattr(thing, "stats"):
            kinds.add(get_type_hints(thing.stats)["return"])
    rows = re.findall(
        r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", (DOCS / "reference/metrics.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    wanted = [name for kind in kinds for name in dir(kind) if not name.startswith("_") and name not in dir(tuple)]
    wanted.append("partitions")  # of a Lag, whose fields are slots only while it is made
    assert sorted({name for name, _, _ in rows}) == sorted(set(wanted))


def test_every_option_of_spark_is_on_a_page() -> None:
    """Those that are taken and mean nothing, too."""
    page = "".join((DOCS / "guide" / name).read_text(encoding="utf-8") for name in ("spark.md", "spark-write.md"))
    assert [name for name in (*READ_OPTIONS, *IGNORED_OPTIONS, *WRITE_OPTIONS) if f"`{name}`" not in page] == []


def test_every_switch_from_the_environment_is_on_a_page() -> None:
    """Variables of ours that the package, its tests or its benchmarks read."""
    sources = "".join(
        path.read_text(encoding="utf-8")
        for room in ("src", "tests", "benchmarks")
        for path in (ROOT / room).rglob("*.py")
    )
    named = set(re.findall(r"environ(?:\.get\(|\[)\"((?:REPLOG|KAFKA|SPARK_KAFKA|BENCH)_\w+)\"", sources))
    pages = "".join(page.read_text(encoding="utf-8") for page in LINKED)
    assert "KAFKA_JARS" in named
    assert [name for name in sorted(named) if not re.search(rf"\b{name}\b", pages)] == []


def test_what_is_public_is_on_the_api_page() -> None:
    """Each public method, property and field of each public class, inherited ones of no builtin too."""
    page = (DOCS / "reference/api.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    missing = []
    for name in pyreplog.__all__:
        kind = getattr(pyreplog, name)
        if not inspect.isclass(kind) or issubclass(kind, pyreplog.PyreplogError):
            continue
        for member in dir(kind):
            owner = next(base for base in kind.__mro__ if member in vars(base) or base is object)
            public = not member.startswith("_") and owner.__module__ not in {"builtins", "enum"}
            if public and not re.search(rf"`{member}\b", sections[name]):
                missing.append(f"{name}.{member}")
    assert missing == []


def test_links_lead_somewhere() -> None:
    """Every relative link of every page is a file of the repository."""
    broken = []
    for page in LINKED:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken


def test_one_title_per_page() -> None:
    """Each page begins with its one ``# Title``, and no heading is more than one level below the one before it:
    `make docs` refuses that. A fragment of the change log is no page."""
    for page in LINKED:
        if page.parent.name == "changes" and page.name != "README.md":
            continue
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1, page
        assert text.startswith("# "), page
        levels = [len(marks) for marks in re.findall(r"^(#+) ", text, re.MULTILINE)]
        assert all(below <= above + 1 for above, below in pairwise(levels)), page


def test_the_controllers_state_is_as_its_page_shows_it() -> None:
    """The example on the page is read, and written again byte for byte: the layout is promised never to change."""
    page = (DOCS / "internals/format/controller.md").read_text(encoding="utf-8")
    example = re.search(r"```text\n(pyreplog-controller .*?\n)```", page, re.DOTALL)
    assert example is not None
    data = example.group(1).encode()
    state = decode(data, "page")
    assert encode(state) == data
    ((key, members),) = state.image.suspects().items()
    assert (state.image.topics[key[0]].name, key[1], members) == ("orders", 0, {2: ReplicaEnd(0, 1)})
    assert [(broker.broker_id, broker.fenced) for broker in state.image.brokers.values()] == [(1, False), (2, True)]


def test_the_acknowledgement_table_is_one() -> None:
    """The first page and the page on durability promise the same, word by word."""
    pages = [
        (ROOT / "README.md").read_text(encoding="utf-8"),
        (DOCS / "internals" / "durability.md").read_text(encoding="utf-8"),
    ]
    tables = [re.findall(r"^\| (?:`\"(?:sync|os)\"`|any) .*$", page, re.MULTILINE) for page in pages]
    assert tables[0] == tables[1]
    assert len(tables[0]) == 5


def test_the_readme_shows_the_two_commands() -> None:
    """The first page has the commands a newcomer needs, and continuous integration runs the same."""
    readme, ci = (ROOT / "README.md").read_text(), (ROOT / ".ci" / "run").read_text()
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in ("demo", "test"):
        assert f"make {target}" in readme
        assert re.search(rf"\b{target}\b", ci)
    assert {"demo", "test", "check", "sanitize", "bench", "docs"} <= set(targets)


def test_the_floor_plan_is_the_one_that_is_checked() -> None:
    """Line by line, the architecture page has the layers of pyproject.toml."""
    page = (DOCS / "internals" / "architecture.md").read_text(encoding="utf-8")
    plan = re.search(r"## The floor plan\n.*?```text\n(.*?)```", page, re.DOTALL)
    assert plan is not None
    drawn = [re.split(r"  +", line)[0] for line in plan.group(1).splitlines() if not line.startswith(" ")]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["name"] == "floor plan")
    assert drawn == [re.sub(r"[()]", "", layer) for layer in layers]


def test_every_room_is_on_the_architecture_page() -> None:
    """Each module of the package appears in the picture of docs/internals/architecture.md."""
    picture = (DOCS / "internals" / "architecture.md").read_text(encoding="utf-8")
    missing = [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "__init__.py" and not re.search(rf"\b{path.stem}(\.py)?\b", picture)
    ]
    assert not missing

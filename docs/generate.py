"""Writes the reference pages from the code: ``python docs/generate.py``. A test fails while a page and the code
differ.

Signatures and texts are taken from the sources (of compiled classes: from their stubs), so nothing is said twice.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyreplog
from pyreplog import config, errors, ports
from pyreplog.cli.main import build_parser
from pyreplog.client import ConsumerConfig, ProducerConfig
from pyreplog.spark.query_lag import Lag
from pyreplog.values import BackupProgress, LogStats, QueueStats, RecoveryProgress

REFERENCE: Final = Path(__file__).resolve().parent / "reference"
DEFAULTS: Final = {"_PRODUCER": ProducerConfig(), "_CONSUMER": ConsumerConfig()}
DEFAULT: Final = re.compile(rf"\b({'|'.join(DEFAULTS)})\.(\w+)")
"""If a default is a field of these objects, the page shows its value."""
ALIASES: Final = ("Buffer", "Headers")
"""Names for annotations."""
BREAK: Final = "\\"
"""At the end of a line of Markdown: begins a new line."""


def pages() -> dict[str, str]:
    """Each generated page by its file name."""
    return {"api.md": api(), "cli.md": cli(), "config.md": settings(), "errors.md": failures(), "metrics.md": metrics()}


# --- the Python API -----------------------------------------------------------------------


def api() -> str:
    """Every name of ``pyreplog.__all__`` but the errors, which have a page of their own."""
    lines = [
        "# Python API",
        "",
        (
            "Everything that `import pyreplog` offers, with the errors of [their own page](errors.md); all other names"
            " are private. The"
        ),
        "modules `pyreplog.aio` ([for coroutines](../guide/asyncio.md)), `pyreplog.errors` and `pyreplog.testing`",
        "([for tests](../guide/simulation.md)) come with it, and are loaded when they are named.",
        "",
    ]
    for name in sorted(pyreplog.__all__, key=str.lower):
        thing = getattr(pyreplog, name)
        if name in ALIASES:
            lines += [f"## `{name}`", "", alias(name), ""]
            continue
        if inspect.isclass(thing) and issubclass(thing, errors.PyreplogError):
            continue
        lines += [f"## `{name}`", ""]
        if not callable(thing):
            lines += [f"`{thing!r}`", ""]
            continue
        node = definition(thing)
        if isinstance(node, ast.ClassDef):
            lines += class_entry(node, thing)
        elif node is not None:
            lines += ["```text", signature(node, node.name), "```", "", *text(node), ""]
        else:
            lines += [inspect.getdoc(thing) or "", ""]
    return "\n".join(lines).rstrip() + "\n"


def alias(name: str) -> str:
    """Return the text below an alias for types."""
    source = Path(str(ports.__file__)).read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            for part, following in pairwise(body if isinstance(body, list) else []):
                if (
                    isinstance(part, ast.Assign)
                    and ast.unparse(part.targets[0]) == name
                    and isinstance(following, ast.Expr)
                ):
                    assert isinstance(following.value, ast.Constant)
                    return markdown(" ".join(str(following.value.value).split()))
    raise LookupError(f"ports.py says nothing about {name}")


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def definition(thing: object) -> Definition | None:
    """Where the class or function is written down: in its module's source, or in the stub of a compiled one."""
    module, name = getattr(thing, "__module__", ""), getattr(thing, "__name__", "")
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return None
    source = Path(spec.origin)
    if source.suffix != ".py":
        source = source.with_name(module.rpartition(".")[2] + ".pyi")
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, Definition) and node.name == name:
            return node
    return None


def class_entry(node: ast.ClassDef, thing: type) -> list[str]:
    """Its text, how it is made, and every public method, property and field, those of private bases and of values
    too."""
    nodes = [*listed_bases(thing), node] if is_dataclass(thing) else [node, *listed_bases(thing)]
    return [*text(node), "", *(line for one in nodes for line in members(one, node.name)), ""]


def listed_bases(thing: type) -> Iterator[ast.ClassDef]:
    """Yield the definition of each base class that is no public name of ``pyreplog``, or is a value with fields."""
    for base in thing.__bases__:
        found = definition(base) if base.__module__.startswith("pyreplog.") else None
        if isinstance(found, ast.ClassDef) and (
            base.__name__ not in pyreplog.__all__ or is_dataclass(base) or thing is pyreplog.NamedConsumer
        ):
            yield found


def members(node: ast.ClassDef, name: str) -> Iterator[str]:
    """Yield the entries of what ``node`` defines for the public class ``name``."""
    enum = any("Enum" in ast.unparse(base) for base in node.bases)
    for part, following in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            made = part.name in {"__init__", "__new__"}
            about = ast.get_docstring(part) or ""
            if made and about.startswith("Made by"):
                continue
            if part.name.startswith("_") and not made:
                continue
            if made and any(isinstance(mark, ast.Name) and mark.id == "overload" for mark in part.decorator_list):
                continue  # the last definition has every parameter
            if any(isinstance(mark, ast.Name) and mark.id == "property" for mark in part.decorator_list):
                kind = f": {ast.unparse(part.returns)}" if part.returns is not None else ""
                yield from entry(f"{part.name}{kind}", text(part))
            elif not made or len(part.args.args) + len(part.args.kwonlyargs) > 1:
                yield from entry(signature(part, name if made else part.name, method=True), text(part))
        elif (
            isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and not part.target.id.startswith("_")
        ):
            below = (
                following.value.value
                if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
                else ""
            )
            yield from entry(
                f"{part.target.id}: {ast.unparse(part.annotation)}", markdown(inspect.cleandoc(str(below))).splitlines()
            )
        elif enum and isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name):
            yield from entry(f"{part.targets[0].id} = {ast.unparse(part.value)}", [])


def entry(head: str, body: list[str]) -> list[str]:
    """One item of a list: ``head`` on a line of its own, its text indented under it."""
    return [f"* `{head}`{BREAK if body else ''}", *(f"  {line}" if line else "" for line in body)]


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, *, method: bool = False) -> str:
    """``name(arguments) -> result`` without ``self``."""
    arguments = DEFAULT.sub(lambda found: repr(getattr(DEFAULTS[found[1]], found[2])), ast.unparse(node.args))
    static = any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in node.decorator_list)
    if method and not static:
        arguments = arguments.partition(",")[2].strip() if "," in arguments else ""
    result = (
        f" -> {ast.unparse(node.returns)}"
        if node.returns is not None and node.name not in {"__init__", "__new__"}
        else ""
    )
    return f"{'await ' if isinstance(node, ast.AsyncFunctionDef) else ''}{name}({arguments}){result}"


def text(node: Definition) -> list[str]:
    """The docstring in Markdown."""
    return markdown(ast.get_docstring(node) or "").splitlines()


def markdown(docstring: str) -> str:
    """Double backticks become single ones, roles plain code."""
    for role in ("class", "meth", "func", "attr", "exc", "mod"):
        docstring = docstring.replace(f":{role}:`", "`")
    return docstring.replace("``", "`")


# --- the command --------------------------------------------------------------------------


def cli() -> str:
    """Every command with every argument and option."""
    parser, parsers = build_parser()
    lines = [
        "# The command `replog`",
        "",
        "```text",
        *(f"replog {name:9} {summary(parser, name)}" for name in parsers),
        "```",
        "",
        "Results go to standard output, in UTF-8, everything else to standard error.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        "| 0 | done; for `verify`: sound |",
        "| 1 | failed: the error is on standard error |",
        "| 2 | not understood: an unknown command, option or value |",
        "| 3 | damage found: records are lost, altered or in doubt |",
        "| 4 | only warnings found: no record is lost |",
        "| 130 | interrupted (Ctrl-C) |",
        "",
        (
            "Work that takes longer than a second shows its progress, on a terminal (unless the records themselves"
            " appear there) or with"
        ),
        (
            "`--progress`. Control characters in topics, keys and values are escaped, so that a record cannot drive the"
            " terminal. A misspelt"
        ),
        ("name is answered with the nearest name, if there is one. `replog help COMMAND` is `replog COMMAND --help`;"),
        "`replog --version` prints the version.",
        "",
    ]
    for name, command in parsers.items():
        lines += [
            f"## `replog {name}`",
            "",
            (command.description or "").strip(),
            "",
            "```text",
            usage(command),
            "```",
            "",
        ]
        lines += ["| argument | meaning |", "|---|---|"]
        for action in command._actions:
            if isinstance(action, argparse._HelpAction):
                continue
            lines.append(f"| `{spelling(action)}` | {cell(action.help or '')} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def summary(parser: argparse.ArgumentParser, name: str) -> str:
    """The one line of help of a command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return next(str(choice.help) for choice in action._choices_actions if choice.dest == name)
    return ""


def usage(command: argparse.ArgumentParser) -> str:
    """Return the usage line, not wrapped to the width of a terminal."""
    words = " ".join(command.format_usage().split())
    return words.removeprefix("usage: ").replace(" [-h]", "")


def spelling(action: argparse.Action) -> str:
    """``-n, --count N`` of an option, ``PATH`` of an argument."""
    if not action.option_strings:
        return str(action.metavar)
    choices = "{" + ",".join(str(choice) for choice in action.choices) + "}" if action.choices else ""
    value = "" if action.nargs == 0 else f" {action.metavar or choices}"
    return ", ".join(action.option_strings) + value


def cell(words: str) -> str:
    """Fit for a table."""
    return words.replace("|", "\\|")


# --- settings and errors ------------------------------------------------------------------


def settings() -> str:
    """The settings of a topic and of a node, with their defaults, limits and texts."""
    lines = [
        "# Settings",
        "",
        "## Of a topic or log",
        "",
        (
            "Given as `config={...}` to `create_topic` and `open_log`, by Kafka's names. An unknown one is refused with"
            " the nearest known."
        ),
        "`min.insync.replicas` of a topic of a cluster defaults to a majority: RF/2 + 1, rounded down.",
        "",
        "| key | default | values | what |",
        "|---|---|---|---|",
    ]
    limits = {name: f"{number(low)} to {number(high)}" for name, low, high in config._LIMITS}
    limits["min_cleanable_dirty_ratio"] = "0 to 1"
    words = {
        "durability": config.DURABILITIES,
        "compression_type": config.CODECS,
        "message_timestamp_type": config.TIMESTAMP_TYPES,
        "preallocate": ("true", "false"),
        "was_compacted": ("true", "false"),
        "cleanup_policy": config.CLEANUP_POLICIES,
        "compact_unkeyed": config.UNKEYED,
    }
    for name, default, about in fields(config.LogConfig):
        values = limits.get(name) or ", ".join(f"`{word}`" for word in words[name])
        lines.append(f"| `{name.replace('_', '.')}` | {number(default)} | {values} | {cell(about)} |")
    lines += ["", "## Of a node", "", "| field of `NodeConfig` | default | what |", "|---|---|---|"]
    lines += [f"| `{name}` | {number(default)} | {cell(about)} |" for name, default, about in fields(config.NodeConfig)]
    return "\n".join(lines) + "\n"


def number(value: object) -> str:
    """Limits of a type by their names."""
    names = {config.INT64_MAX: "2^63 - 1", config.INT32_MAX: "2^31 - 1"}
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return names.get(value, str(value)) if isinstance(value, int) else f"`{value}`"


def fields(kind: type) -> Iterator[tuple[str, object, str]]:
    """(name, default, text below it) of each field of a dataclass."""
    node = definition(kind)
    assert isinstance(node, ast.ClassDef)
    texts: dict[str, str] = {}
    for part, following in zip(node.body, node.body[1:], strict=False):
        if not (
            isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and isinstance(following, ast.Expr)
        ):
            continue
        if isinstance(following.value, ast.Constant) and isinstance(following.value.value, str):
            texts[part.target.id] = " ".join(markdown(following.value.value).split())
    for field in dataclasses.fields(kind):
        yield field.name, field.default, texts.get(field.name, "")


def failures() -> str:
    """The tree of exceptions."""
    lines = [
        "# Errors",
        "",
        (
            "One tree, all of it in `pyreplog` (and in `pyreplog.errors`): `except pyreplog.StorageError`. Each class"
            " keeps the"
        ),
        (
            "facts a handler needs as attributes; where Python has a name for the kind, it is a second parent, so that"
            " `except OSError` keeps"
        ),
        (
            "meaning what people expect. Kafka's number and whether trying again can help stand with those that are a"
            " node's answer."
        ),
        "",
    ]

    def walk(kind: type[errors.PyreplogError], depth: int) -> None:
        parents = [base.__name__ for base in kind.__bases__ if not issubclass(base, errors.PyreplogError)]
        also = (
            "" if not parents or parents == ["Exception"] else f", also {' and '.join(f'`{name}`' for name in parents)}"
        )
        answer = ""
        if issubclass(kind, errors.ClusterError) and kind is not errors.ClusterError:
            answer = f" (Kafka's {kind.code}{', retriable' if kind.retriable else ''})"
        about = " ".join(markdown(inspect.cleandoc(kind.__doc__ or "")).split())
        lines.append(f"{'  ' * depth}* `{kind.__name__}`{also}{answer}: {about}")
        for child in sorted(kind.__subclasses__(), key=lambda child: child.__name__):
            if child.__module__ == errors.__name__:
                walk(child, depth + 1)

    walk(errors.PyreplogError, 0)
    return "\n".join(lines) + "\n"


# --- metrics ------------------------------------------------------------------------------

MEASURED: Final = (
    ("`log.stats()`", LogStats),
    ("`queue.stats()`", QueueStats),
    ("The argument of `progress` of `open_log` and `Cluster`", RecoveryProgress),
    ("The argument of `progress` of `backup`", BackupProgress),
    ("`pyreplog.spark.lag(query)`", Lag),
)
UNITS: Final = {
    "offset": "offset",
    "watermark": "offset",
    "offsets": "offsets",
    "total": "offsets",
    "size": "bytes",
    "bytes": "bytes",
    "epoch": "number",
}
COUNTS: Final = ("count", "batches", "records", "syncs", "acquired", "available", "accepted", "letters", "deleted")


def metrics() -> str:
    """Return the page of every number that the library reports of itself, with its unit."""
    lines = [
        "# Metrics",
        "",
        (
            "These values can be read at any time: nothing is sent anywhere, and reading is cheap. Counts are of"
            " one opening: they begin"
        ),
        (
            "at 0 when the log is opened, and only a writer counts (a reader has 0 there). In a cluster, open a"
            " node's folder to read"
        ),
        (
            "(`open_log(cluster.nodes[0].path, 'r', topic=..., partition=...)`) for the numbers of its copy; producers"
            " and consumers report"
        ),
        "each record (`Ack`, `Record`) and positions, and keep no counts. Events are",
        "[logged](../guide/logging.md).",
        "",
    ]
    for title, kind in MEASURED:
        node = definition(kind)
        assert isinstance(node, ast.ClassDef)
        lines += [
            f"## {title}",
            "",
            *text(node),
            "",
            f"| field of `{kind.__name__}` | unit | meaning |",
            "|---|---|---|",
        ]
        lines += [f"| `{name}` | {unit(name)} | {cell(about)} |" for name, about in measured(node)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def measured(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """(name, text) of each field and property."""
    for part, following in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(part, ast.FunctionDef):
            yield part.name, " ".join(text(part))
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            below = (
                following.value.value
                if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
                else ""
            )
            yield part.target.id, " ".join(markdown(str(below)).split())


def unit(name: str) -> str:
    """By the words of a name."""
    words = name.split("_")
    if name in {"topic", "directory", "stage"}:
        return "text"
    if name == "partition":
        return "number"
    if name == "partitions":
        return "offsets, by partition"
    found = [UNITS[word] for word in reversed(words) if word in UNITS] or ["count" for word in words if word in COUNTS]
    if not found:
        raise LookupError(f"the unit of {name} is not known: name it in UNITS or COUNTS")
    return found[0]


def main() -> int:
    """Write the pages that differ; print their names."""
    REFERENCE.mkdir(exist_ok=True)
    for name, content in pages().items():
        path = REFERENCE / name
        if not path.is_file() or path.read_text(encoding="utf-8") != content:
            path.write_text(content, encoding="utf-8")
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())

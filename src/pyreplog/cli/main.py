"""``replog``: chooses the command, and turns every failure into one clear line and an exit code.

Exit codes: 0 done, 1 failed, 2 not understood, 3 damage found, 4 only warnings (verify); 130 after Ctrl-C.
Nothing but results goes to standard output.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Collection, Sequence
from importlib.metadata import version
from typing import Final

from pyreplog.cli import (
    append,
    backup,
    bench,
    cat,
    describe,
    dlq_list,
    dlq_replay,
    dlq_show,
    dump,
    exporting,
    importing,
    lesson,
    quorum_describe,
    quorum_recover,
    repair,
    tail,
    top,
    topics,
    topics_compact,
    topics_config,
    topics_create,
    topics_delete,
    verify,
)
from pyreplog.cli.options import EXIT_DAMAGED, EXIT_FAILED, EXIT_OK, EXIT_USAGE, Parser
from pyreplog.cli.output import in_options, say, silence
from pyreplog.cli.rows import RowError
from pyreplog.config import suggestion
from pyreplog.errors import CorruptError, PyreplogError

__all__ = ["COMMANDS", "build_parser", "main"]

#: Each has ``NAME``, ``HELP``, ``add_arguments(parser)`` and ``run(arguments) -> exit code``.
COMMANDS: Final = (
    topics,
    topics_create,
    topics_config,
    topics_compact,
    topics_delete,
    append,
    cat,
    tail,
    describe,
    top,
    dump,
    verify,
    repair,
    quorum_describe,
    quorum_recover,
    dlq_list,
    dlq_show,
    dlq_replay,
    backup,
    importing,
    exporting,
    bench,
    lesson,
)

EXIT_INTERRUPTED: Final = 130

ABOUT: Final = """\
Kafka-format replicated logs in a folder: look at them, add to them, read them.

exit codes: 0 done, 1 failed, 2 not understood, 3 damage found, 4 only warnings"""


def build_parser() -> tuple[Parser, dict[str, Parser]]:
    """The whole grammar, and each command's own parser."""
    parser = Parser(prog="replog", description=ABOUT)
    parser.add_argument("--version", action="version", version=f"replog {version('pyreplog')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", parser_class=Parser)
    parsers = {}
    for module in COMMANDS:
        parsers[module.NAME] = commands.add_parser(module.NAME, help=module.HELP, description=module.__doc__)
        module.add_arguments(parsers[module.NAME])
    return parser, parsers


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    _fill_closed_streams()
    if sys.stdout is None:
        say("replog: standard output is closed; use >/dev/null to see nothing")
        return EXIT_FAILED
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Records may have any character, and JSON is UTF-8 whatever the locale says.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    code = _main(words)
    try:
        sys.stdout.flush()
    except OSError as error:
        # A failed write of a result is reported already, a failed write of help is not. Python
        # would report it again at exit, with its own exit code.
        silence(sys.stdout)
        if code == EXIT_OK and not isinstance(error, BrokenPipeError):
            say(f"replog: {in_options(error)}")
            return EXIT_FAILED
    return code


def _main(words: list[str]) -> int:
    parser, parsers = build_parser()
    if words and words[0] == "help":
        words = [*words[1:], "--help"]
    words = _joined(words, parsers)
    if not words:
        parser.print_help()
        return EXIT_USAGE
    if not words[0].startswith("-") and words[0] not in parsers:
        say(f"replog: unknown command {words[0]!r}{suggestion(words[0], (*parsers, 'help'))}")
        say("Try 'replog --help'.")
        return EXIT_USAGE
    try:
        if words[0] in parsers:
            # Files may stand behind options too.
            arguments, unknown = parsers[words[0]].parse_known_intermixed_args(words[1:])
            arguments.command = words[0]
        else:
            arguments, unknown = parser.parse_known_args(words)
    except SystemExit as leaving:  # argparse has printed help, version or an error
        return leaving.code if isinstance(leaving.code, int) else EXIT_USAGE
    try:
        if words[0] not in parsers:
            _refuse_before(parsers.get(arguments.command, parser), unknown)
        parsers.get(arguments.command, parser).refuse_unknown(unknown)
    except SystemExit:
        return EXIT_USAGE
    return _run(arguments)


def _joined(words: list[str], names: Collection[str]) -> list[str]:
    """Return ``words`` with the two words of a command such as ``topics create`` made one.

    ``topics create`` alone, or with options only, lists the topics of the folder "create", because ``topics`` is a
    command too.
    """
    both, rest = " ".join(words[:2]), words[2:]
    has_more = any(not word.startswith("-") or word in ("-h", "--help") for word in rest)
    return [both, *rest] if both in names and (has_more or words[0] not in names) else words


def _refuse_before(parser: Parser, words: Sequence[str]) -> None:
    """Of what parsing left over of words that begin with an option, which is none that stands before a command."""
    name = words[0].partition("=")[0] if words else ""
    if parser.has_option(name):
        parser.error(f"{name} is an option of {parser.prog!r}: put it after the command")


def _fill_closed_streams() -> None:
    """Replace the standard streams that the caller closed, so that no file of a log gets their descriptor
    numbers."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115  (until the process ends)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (until the process ends)


def _run(arguments: argparse.Namespace) -> int:
    module = next(module for module in COMMANDS if arguments.command == module.NAME)
    try:
        code: int = module.run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of our output has seen enough (`| head`).
        silence(sys.stdout)
        return EXIT_OK
    except KeyboardInterrupt:
        say(f"replog {arguments.command}: interrupted")
        return EXIT_INTERRUPTED
    except (PyreplogError, RowError, OSError, MemoryError) as error:
        say(f"replog {arguments.command}: {in_options(error)}")
        if isinstance(error, CorruptError):
            return EXIT_DAMAGED
    except Exception as error:
        if os.environ.get("REPLOG_TRACEBACK"):
            raise
        say(f"replog {arguments.command}: internal error, please report it (REPLOG_TRACEBACK=1 shows where): {error!r}")
    return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())

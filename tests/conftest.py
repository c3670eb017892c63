"""What every test shares: how hard hypothesis tries. ``HYPOTHESIS_PROFILE=thorough`` tries ten times as hard,
``quick`` a fifth."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "pyreplog"

SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for a minute or two gains nothing from compiling well: without, tests take twice as long on busy
cores."""

PYTHON_ALONE = """
import _testcapi
class Files:
    sizes = [1, 2]
    def size(self):
        return sum(size for size in self.sizes)
def deep(files, depth):
    return deep(files, depth - 1) if depth else files.size()
for nth in range(80):
    _testcapi.set_nomemory(nth, nth + 1)
    try:
        deep(Files(), 3)
    except MemoryError:
        pass
    finally:
        _testcapi.remove_mem_hooks()
"""

SLOW_MACHINE = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "default", deadline=None, derandomize=bool(os.environ.get("CI")), suppress_health_check=SLOW_MACHINE
)
settings.register_profile("quick", settings.get_profile("default"), max_examples=20)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--rewrite`` of the scripts; ``--seeds`` of the simulations."""
    parser.addoption("--seeds", type=int, default=200, help="how many simulated clusters tests/replication/sim runs")
    parser.addoption("--rewrite", action="store_true", help="write the expected lines of the scenarios again")


def pytest_configure() -> None:
    """Where a source is newer than what was compiled of it nothing is run: it would be the old one."""
    os.environ.setdefault("JAVA_TOOL_OPTIONS", SHORT_LIVED_JAVA)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(
            signal.SIGINT, signal.default_int_handler
        )  # a run in the background: children would not hear Ctrl-C
    shims = [path for path in PACKAGE.rglob("*.so") if path.parent.name != "_core"]
    compiled_ns = max((path.stat().st_mtime_ns for path in PACKAGE.parent.glob("pyreplog__mypyc*.so")), default=0)
    for shim in shims:
        source = shim.with_name(f"{shim.name.partition('.')[0]}.py")
        if not source.exists() or source.stat().st_mtime_ns > compiled_ns:
            pytest.exit(
                f"{source} is newer than what was compiled of it: make .venv/.ready-core, or make pure", returncode=4
            )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Under ``--dist loadfile`` the tests of one session of Spark are as one file: a second session takes half a
    minute to get going."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # noqa: PLC0415  (there where tests run in parallel)

    class ByFile(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "tests/unit/spark" if file.startswith("tests/unit/spark/") else file

    return ByFile(config, log)


def pytest_report_header() -> str:
    """Whether Python was compiled here."""
    return f"pyreplog: Python {'compiled' if [*PACKAGE.parent.glob('pyreplog__mypyc*.so')] else 'interpreted'}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Soaks, and tests of a built wheel, run only where ``-m`` names them. Files with slow tests begin, then those
    with Spark: what ends a run should be short."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    spark = {item.path for item in items if item.get_closest_marker("spark")}
    items.sort(key=lambda item: (item.path not in slow, item.path not in spark))
    for kind in ("soak", "wheel"):
        if kind not in config.option.markexpr:
            others = [item for item in items if item.get_closest_marker(kind)]
            config.hook.pytest_deselected(items=others)
            items[:] = [item for item in items if not item.get_closest_marker(kind)]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What the simulations amounted to: tests say it with ``record_property("simulation", text)``."""
    lines = [
        f"{report.nodeid.rpartition('::')[2]}: {text}"
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, text in report.user_properties
        if name == "simulation"
    ]
    if lines:
        terminalreporter.section("simulation")
        for line in sorted(lines):
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def failing_allocations() -> None:
    """For tests that have allocations fail: needs the interpreter's own tests, and one that lives on where they
    do."""
    pytest.importorskip("_testcapi")
    if (
        subprocess.run([sys.executable, "-c", PYTHON_ALONE], capture_output=True, timeout=60, check=False).returncode
        < 0
    ):
        pytest.skip("this Python dies by itself where an allocation fails: 3.13.5 does")

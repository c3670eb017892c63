"""The service of the guide, as its readers run it: uvicorn with two workers, and a consumer in another process."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyreplog

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "service"
MISSING = [name for name in ("fastapi", "uvicorn", "httpx") if importlib.util.find_spec(name) is None]
KINDS = ("click", "view")
REQUESTS_MAX = 400

pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"SKIPPED: the guide's service needs {', '.join(MISSING)}: install the group test"
)


@contextmanager
def running(*command: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A program of the example, whose output and errors are one pipe; it ends with the block."""
    done = subprocess.Popen(
        [sys.executable, *command],
        cwd=EXAMPLE,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield done
    finally:
        done.kill()
        done.wait()
        assert done.stdout is not None
        done.stdout.close()


def line_with(program: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """The first line of its output that matches."""
    assert program.stdout is not None
    seen = []
    for line in program.stdout:
        if found := re.search(pattern, line):
            return found
        seen.append(line)
    raise AssertionError("".join(seen))


def post(url: str, number: int, acknowledged: dict[tuple[str, int], str]) -> str:
    """Send one event over a new connection, which either worker may take; the log that it is in."""
    kind = KINDS[number % 2]
    done = importlib.import_module("httpx").post(
        f"{url}/events", json={"user": f"user-{number}", "kind": kind}, timeout=30
    )
    assert done.status_code == 201
    place = done.json()
    key = place["log"], place["offset"]
    assert key not in acknowledged
    acknowledged[key] = f"user-{number}"
    return str(place["log"])


@pytest.mark.timeout(100)
def test_two_workers_and_a_consumer(tmp_path: Path) -> None:
    """Both workers take events, each into a log of its own. A worker that is killed is replaced by one that goes on
    in its folder. Each acknowledged event is in one of the two logs, and the consumer counts each once."""
    events, counts = tmp_path / "events", tmp_path / "counts.json"
    settings: dict[str, Any] = {"EVENTS": str(events), "COUNTS": str(counts), "WEB_CONCURRENCY": "2"}
    acknowledged: dict[tuple[str, int], str] = {}
    with running("consumer.py", **settings) as consumer:
        with running(
            "-m", "uvicorn", "app:app", "--host", "127.0.0.1", "--port", "0", "--no-access-log", **settings
        ) as server:
            url = line_with(server, r"running on (http://127\.0\.0\.1:\d+)")[1]
            workers = [int(line_with(server, r"Started server process \[(\d+)\]")[1]) for _ in range(2)]
            used = {post(url, 0, acknowledged)}
            while len(used) < 2:
                assert len(acknowledged) < REQUESTS_MAX, "one worker took every connection"
                used.add(post(url, len(acknowledged), acknowledged))
            os.kill(workers[0], signal.SIGKILL)
            line_with(server, r"Started server process")
            line_with(server, r"Application startup complete")
            for _ in range(20):
                post(url, len(acknowledged), acknowledged)
            server.terminate()
            assert server.wait() == 0
        while int(line_with(consumer, r"^(\d+)$")[1]) < len(acknowledged):
            pass
        consumer.terminate()
        assert consumer.wait() == 0
    assert sorted(folder.name for folder in events.iterdir()) == ["worker-0", "worker-1"]
    together = pyreplog.scan([events / "worker-0", events / "worker-1"], ["log", "offset", "value"])
    found = {(row["log"], row["offset"]): json.loads(row["value"])["user"] for row in pa.table(together).to_pylist()}
    assert found == acknowledged
    assert json.loads(counts.read_text())["kinds"] == Counter(KINDS[number % 2] for number in range(len(found)))

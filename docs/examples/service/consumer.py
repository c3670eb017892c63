"""Counts the events of all workers by kind, in a process of its own: ``python consumer.py``.

It reads beside the writers and takes no lock. The counts and the positions are kept in one file, which is replaced
as a whole: an event is counted once, whenever the consumer is stopped or killed. A folder that appears later is
read from its start.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections import Counter
from pathlib import Path

import pyreplog
from pyreplog import aio

FOLDER = Path(os.environ.get("EVENTS", "events"))
COUNTS = Path(os.environ.get("COUNTS", "counts.json"))
LOOK_S = 0.2


class Counts:
    """The counts so far, and the offset in each log from which to go on."""

    def __init__(self, path: Path) -> None:
        """Go on from the file ``path``, if there is one."""
        kept = json.loads(path.read_text()) if path.exists() else {"kinds": {}, "positions": {}}
        self.kinds: Counter[str] = Counter(kept["kinds"])
        self.positions: dict[str, int] = kept["positions"]
        self._path = path
        self._saved = self.kinds.total()

    def save(self) -> None:
        """Replace the file if there is news."""
        if self.kinds.total() == self._saved:
            return
        new = self._path.with_suffix(".new")
        with new.open("w") as file:
            json.dump({"kinds": self.kinds, "positions": self.positions}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        self._saved = self.kinds.total()
        print(self._saved, flush=True)


async def count(log: aio.Log, name: str, counts: Counts) -> None:
    """Count each event of one worker's log, those that are there and those to come."""
    async for record in log.follow(counts.positions.get(name, 0)):
        counts.kinds[json.loads(record.value or b"{}")["kind"]] += 1
        counts.positions[name] = record.offset + 1  # no await between these two lines, so they are saved together


async def main() -> None:
    """Follow each log from its folder's appearance on, until SIGTERM or Ctrl-C."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    counts = Counts(COUNTS)
    followed: set[str] = set()
    async with contextlib.AsyncExitStack() as logs:
        tasks: list[asyncio.Task[None]] = []
        while not stop.is_set() and not any(task.done() for task in tasks):
            for folder in sorted(FOLDER.glob("worker-*")):
                if folder.name in followed:
                    continue
                with contextlib.suppress(pyreplog.StorageNotFoundError):  # its worker has only just begun to make it
                    log = await logs.enter_async_context(aio.open_log(folder, "r"))
                    tasks.append(asyncio.create_task(count(log, folder.name, counts)))
                    followed.add(folder.name)
            counts.save()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_S)
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, pyreplog.PyreplogError | ValueError):
                raise ended
    counts.save()


if __name__ == "__main__":
    asyncio.run(main())

"""Four processes work on one queue and are killed (kill -9) at random calls of its journal, until no record is left.

``python -m tests.faults.kills.queue_workers FOLDER SEED COUNT``: the log is in FOLDER. Each worker appends what it does
to a file of its own: "try OFFSET" before an accept, "accepted OFFSET" and "rejected OFFSET" after one that returned.
"""

from __future__ import annotations

import os
import signal
import sys
from random import Random
from typing import Any, Final

import pyreplog
from pyreplog.system.shared_file import SystemSharedFile

WORKERS: Final = 4
CALLS: Final = ("lock", "lock_and_read", "append_unchanged", "read_at", "write_at", "unlock", "sync", "hold")
DIES_WITHIN: Final = 150
"""A worker dies before one of its first so many calls."""
POISON_EVERY: Final = 40
"""Every so many records is one that no worker accepts."""


def dying(seed: int) -> None:
    """Let this process die before a random call of a shared file, or after it."""
    chance = Random(seed)
    left = [chance.randrange(1, DIES_WITHIN)]
    after = chance.random() < 0.5

    def wrap(name: str) -> Any:
        plain = getattr(SystemSharedFile, name)

        def call(self: Any, *arguments: Any) -> Any:
            left[0] -= 1
            if not left[0] and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = plain(self, *arguments)
            if not left[0] and after:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call

    for name in CALLS:
        setattr(SystemSharedFile, name, wrap(name))


def work(folder: str, seed: int, mode: Any) -> None:
    """Settle records until there is none left."""
    chance = Random(-seed)
    notes = os.open(f"{folder}/notes-{seed}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(what: str, offset: int) -> None:
        os.write(notes, f"{what} {offset}\n".encode())

    with pyreplog.open_log(f"{folder}/log", mode) as log, log.queue("work") as queue:
        while True:
            records = queue.receive_many(chance.choice((1, 1, 3)), timeout=0.05)
            if not records and not queue.stats().acquired:
                return
            for record in records:
                if record.offset % POISON_EVERY == 0 or chance.random() < 0.1:
                    queue.release(record)
                elif chance.random() < 0.05:
                    note("try", record.offset)
                    queue.reject(record)
                    note("rejected", record.offset)
                else:
                    note("try", record.offset)
                    queue.accept(record)
                    note("accepted", record.offset)


def main(folder: str, seed: int) -> int:
    """Keep four workers running until one of them finds no record left; return how many were killed."""
    running: dict[int, int] = {}
    killed = started = 0
    done = False
    while running or not done:
        while len(running) < WORKERS and not done:
            started += 1
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    dying(seed * 1000 + started)
                    work(folder, seed * 1000 + started, "r")
                    code = 0
                except BaseException as error:
                    sys.stderr.write(f"{type(error).__name__}: {error}\n")
                    raise
                finally:
                    os._exit(code)
            running[child] = started
        child, status = os.wait()
        del running[child]
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL:
            killed += 1
        elif code == 0:
            done = True
        else:
            return -1
    return killed


if __name__ == "__main__":
    result = main(sys.argv[1], int(sys.argv[2]))
    print(result)
    sys.exit(result < 0)

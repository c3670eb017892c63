"""A process that reads a log which another one writes: ``python -m tests.unit.runtime.recovery_listener FOLDER OUT``.

It follows the log until a record says that it is the last, answers questions on its standard input meanwhile, and
writes down what it saw: one line ``offset value`` for each record, ``gap from to`` where records were deleted
before it came to them.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pyreplog
from pyreplog.log import open_readers
from pyreplog.log.mark import read_mark
from pyreplog.system import SystemDisk

LAST = b"the last one"


def answer(folder: str) -> None:
    """For each offset on the standard input: whether a fresh look sees the record there, and whether all that may
    be seen is safe."""
    disk = SystemDisk()
    reader = next(iter(open_readers(disk, folder).values()))
    highest = 0
    for line in sys.stdin:
        reader.refresh()
        seen = reader.end_offset > int(line)
        if reader.end_offset < highest:
            print("went back", flush=True)
            return
        highest = reader.end_offset
        mark = read_mark(disk, reader.directory)  # read after the watermark: it can only be newer
        assert mark is not None
        safe = mark.durability == "os" or mark.synced_end >= reader.end_offset
        print("seen" if seen and safe else f"seen {seen} safe {safe}", flush=True)
    reader.close()


def main() -> None:
    """Follow to the end."""
    folder, out = sys.argv[1:]
    threading.Thread(target=answer, args=(folder,), daemon=True).start()
    with Path(out).open("w") as file, pyreplog.open_log(folder, mode="r") as log:
        position = log.start_offset
        print("ready", flush=True)
        while True:
            try:
                for record in log.follow(position, timeout=60):
                    print(record.offset, (record.value or b"").decode(), file=file)
                    position = record.offset + 1
                    if record.value == LAST:
                        return
                raise TimeoutError("nothing came for a minute")
            except pyreplog.OffsetOutOfRangeError as error:
                assert position < error.start, error
                print("gap", position, error.start, file=file)
                position = error.start


if __name__ == "__main__":
    main()

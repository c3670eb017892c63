"""For Spark's Python workers in the tests: die by SIGKILL at the step of a write that the file $REPLOG_KILL_FILE
names, once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from pyreplog.runtime.spool_applier import RootAppender
from pyreplog.spool import Spool
from pyreplog.spool.staged import StagedWriter

_FILE = os.environ["REPLOG_KILL_FILE"]


def _die_at(step: str) -> None:
    try:
        with open(_FILE) as file:
            if file.read().strip() != step:
                return
        os.unlink(_FILE)  # whoever gets it dies: once, not in each task
    except OSError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _around(kind: type, name: str, before: str, after: str) -> None:
    original: Callable[..., Any] = getattr(kind, name)

    def replaced(*arguments: Any, **named: Any) -> Any:
        _die_at(before)
        result = original(*arguments, **named)
        _die_at(after)
        return result

    setattr(kind, name, replaced)


_around(StagedWriter, "add", "executor before staging", "executor while staging")
_around(StagedWriter, "finish", "executor before its file is whole", "executor after staging")
_around(Spool, "publish", "driver before the manifest", "driver after the manifest")
_around(RootAppender, "append", "owner before the append", "owner in the middle of the append")
_around(Spool, "finish", "owner after the append", "owner after all")

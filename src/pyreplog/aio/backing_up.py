"""``backup`` for coroutines."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from pyreplog.aio.calls import ThreadCalls
from pyreplog.config import Permissions
from pyreplog.errors import ClosedError
from pyreplog.runtime import backup as make_backup
from pyreplog.values import BackupProgress, BackupReport

__all__ = ["backup"]


async def backup(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    progress: Callable[[BackupProgress], None] | None = None,
    permissions: Permissions = "owner",
) -> BackupReport:
    """Copy ``source`` into ``target`` and verify the copy, as :func:`pyreplog.backup` does, in a thread.

    ``progress`` is called in that thread. If the caller is cancelled the copying ends soon, and ``target`` stays
    unfinished until the next call.
    """
    is_cancelled = False

    def tell(news: BackupProgress) -> None:
        if is_cancelled:
            raise ClosedError(f"the backup into {os.fspath(target)!r} was cancelled: it is not finished")
        if progress is not None:
            progress(news)

    calls = ThreadCalls("a backup")
    try:
        return await calls.write(partial(make_backup, source, target, progress=tell, permissions=permissions))
    except BaseException:
        is_cancelled = True
        raise
    finally:
        calls.stop()

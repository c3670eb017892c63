"""``recover_quorum`` for coroutines."""

from __future__ import annotations

import os
from functools import partial

from pyreplog.aio.calls import ThreadCalls
from pyreplog.config import Permissions
from pyreplog.runtime import QuorumRecovery
from pyreplog.runtime import recover_quorum as recover

__all__ = ["recover_quorum"]


async def recover_quorum(
    path: str | os.PathLike[str], *, permissions: Permissions = "owner", lock_timeout: float | None = 0
) -> QuorumRecovery:
    """Let a cluster go on that lost a majority of its voters for good, as :func:`pyreplog.recover_quorum` does, in a
    thread. **Acknowledged records and topics may be lost**; the result says which.

    If the caller is cancelled the recovery goes on in its thread to the end.
    """
    calls = ThreadCalls("a recovery of the quorum")
    try:
        return await calls.write(partial(recover, path, permissions=permissions, lock_timeout=lock_timeout))
    finally:
        calls.stop()

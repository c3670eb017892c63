"""Topics that are or were compacted: the setting ``was.compacted``, which only the controller writes.

A topic that becomes compacted gets it before the change of its policy. Replicas must know that gaps between offsets
are legal there, also when the policy is ``delete`` again. So the setting stays for as long as the topic.
"""

from __future__ import annotations

from typing import Final

from pyreplog.config import LogConfig
from pyreplog.controller.refused import RefusedError
from pyreplog.wire import RESOURCE_TOPIC, ConfigRecord, ErrorCode

__all__ = ["WAS_COMPACTED", "check_unchanged", "compaction_note"]

WAS_COMPACTED: Final = "was.compacted"


def compaction_note(topic: str, config: LogConfig, before: LogConfig | None = None) -> list[ConfigRecord]:
    """Return the record that says that ``topic`` is compacted, if ``config`` compacts it and its settings ``before``
    do not say so yet. None: it is a new topic."""
    if not config.compacts or (before is not None and before.was_compacted):
        return []
    return [ConfigRecord(RESOURCE_TOPIC, topic, WAS_COMPACTED, "true")]


def check_unchanged(asked: str, *, was_compacted: bool) -> None:
    """Raise :class:`RefusedError` if ``asked`` is not the value of ``was.compacted``, because clients cannot change
    it."""
    if asked != str(was_compacted).lower():
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"{WAS_COMPACTED} is {str(was_compacted).lower()} and cannot be set to {asked}: only the controller writes"
            " it, when a topic becomes compacted",
        )

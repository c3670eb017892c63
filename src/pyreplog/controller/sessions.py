"""The sessions of brokers with this controller: which of them are alive. Soft state, never
written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyreplog.controller.image import BrokerImage

__all__ = ["BrokerSession", "BrokerSessions"]


@dataclass(slots=True)
class BrokerSession:
    """The facts about one broker since this controller started.

    ``registered``: this incarnation registered with this controller and is not known to be dead.
    ``began``: its first registration was with this controller, so it never ran under another one.
    ``alive``: its last message arrived within the session timeout.
    """

    contact_ns: int
    registered: bool
    began: bool = False
    alive: bool = True
    metadata_offset: int = -1
    unfenced_ns: int = 0
    """When the broker was unfenced, or this controller found it so."""
    shutdown_offset: int = -1
    """Offset of the newest record that moved a leadership or membership away (controlled
    shutdown)."""


class BrokerSessions:
    """All sessions. One owner."""

    __slots__ = ("_sessions", "_timeout_ns")

    def __init__(self, timeout_ns: int) -> None:
        self._timeout_ns = timeout_ns
        self._sessions: dict[int, BrokerSession] = {}

    def get(self, broker_id: int) -> BrokerSession | None:
        """Return the session of a broker, or None if it has none."""
        return self._sessions.get(broker_id)

    def __getitem__(self, broker_id: int) -> BrokerSession:
        """Return the session of a broker that has one."""
        return self._sessions[broker_id]

    def begin(self, broker_id: int, now_ns: int, *, registered: bool, began: bool = False) -> None:
        """Begin a session, which replaces an older one."""
        self._sessions[broker_id] = BrokerSession(now_ns, registered, began, unfenced_ns=now_ns)

    def is_registered(self, broker_id: int) -> bool:
        """Return whether the broker's incarnation registered here and is not known to be dead."""
        session = self._sessions.get(broker_id)
        return session is not None and session.registered

    def is_alive(self, broker_id: int) -> bool:
        """Return whether the broker registered here, and its last message was in time."""
        session = self._sessions.get(broker_id)
        return session is not None and session.registered and session.alive

    def began(self, broker_id: int) -> bool:
        """Return whether the broker's incarnation first registered with this controller."""
        session = self._sessions.get(broker_id)
        return session is not None and session.began

    def end(self, broker_id: int) -> None:
        """Note that the incarnation is dead or has stopped: only a new registration helps."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.alive = session.registered = False

    def next_timeout_ns(self) -> int | None:
        """Return the time at which the next session times out if no message arrives before."""
        return min((one.contact_ns + self._timeout_ns for one in self._sessions.values() if one.alive), default=None)

    def time_out(self, now_ns: int) -> Iterator[int]:
        """Yield the brokers whose sessions have timed out, each once."""
        for broker_id, session in self._sessions.items():
            if session.alive and now_ns - session.contact_ns >= self._timeout_ns:
                session.alive = False
                yield broker_id

    def time_out_again(self, brokers: Mapping[int, BrokerImage], at_ns: int) -> None:
        """Let sessions time out a second time, at ``at_ns``: those of unfenced ``brokers`` that
        have timed out."""
        for broker_id, session in self._sessions.items():
            broker = brokers.get(broker_id)
            if broker is not None and not broker.fenced and not session.alive:
                session.alive = True
                session.contact_ns = at_ns - self._timeout_ns

    def extend(self, stall_ns: int) -> None:
        """Add ``stall_ns`` to every session: the controller's own pause is not silence of a
        broker."""
        for session in self._sessions.values():
            session.contact_ns += stall_ns

"""Ack: what is made once per call."""

from collections.abc import Generator
from typing import Any, Protocol, final, type_check_only

from pyreplog.values import RecordMetadata

@type_check_only
class Outcome(Protocol):
    """What an Ack belongs to: one batch on its way. Made by the runtime."""

    def wait(self, timeout: float | None) -> None:
        """Block until settled; TimeoutError when ``timeout`` seconds pass first."""
    def future(self) -> Any:
        """An awaitable of the running event loop that ends when settled."""
    @property
    def settled(self) -> bool: ...
    @property
    def error(self) -> BaseException | None: ...
    def metadata(self, index: int) -> RecordMetadata:
        """Of the ``index``-th record. REQUIRES settled without error."""

@final
class Ack:
    """A handle on one record's acknowledgement: ``result()``, ``await``, ``offset``. Thread-safe."""

    def __new__(cls, outcome: Outcome, index: int) -> Ack: ...
    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for it. Raises what went wrong (``OutcomeUnknownError`` where nobody can say), TimeoutError after ``timeout`` seconds."""
    def done(self) -> bool: ...
    def exception(self, timeout: float | None = None) -> BaseException | None: ...
    @property
    def offset(self) -> int | None:
        """The record's offset once known, else None. Never waits."""
    def __await__(self) -> Generator[Any, None, RecordMetadata]: ...

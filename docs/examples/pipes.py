"""A transport over pipes of ``multiprocessing``: a frame has its size (4 bytes), its kind and the message."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import combinations
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from pyreplog.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from pyreplog.ports import Address, Connected, Disconnected, Received, TransportEvent
from pyreplog.wire import FRAME_SIZE_MAX, Conversation, Request, Response

QUEUE_SIZE_MAX = 64 << 20
"""Bytes that may wait for a slow peer before ``send`` says False."""


class PipeNetwork:
    """A pipe between every two of ``addresses``. Make it before the processes, then give each the endpoint of its
    address."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self.ends: dict[Address, dict[Address, Connection]] = {address: {} for address in addresses}
        for one, other in combinations(addresses, 2):
            self.ends[one][other], self.ends[other][one] = Pipe()


class _Link:
    """One end of a pipe, with its unsent bytes, and the received bytes of an incomplete frame."""

    def __init__(self, own: Address, peer: Address, end: Connection) -> None:
        os.set_blocking(end.fileno(), False)
        self.end = end
        self.conversation = Conversation(own, peer)
        self.outgoing = bytearray()
        self.incoming = bytearray()
        self.paused = False


class PipeTransport:
    """One endpoint of a :class:`PipeNetwork`. One owner; ``wake`` from any thread."""

    def __init__(self, network: PipeNetwork) -> None:
        self._network = network
        self._address: Address | None = None
        self._links: dict[Address, _Link] = {}
        self._events: deque[TransportEvent] = deque()
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def listen(self, address: Address) -> Address:
        if self._address is not None:
            raise LocalProtocolError(f"this endpoint listens at {self._address} already")
        if address not in self._network.ends:
            raise LocalProtocolError(f"{address} has no pipes")
        self._address = address
        self._links = {peer: _Link(address, peer, end) for peer, end in self._network.ends[address].items()}
        return address

    def connect(self, peer: Address) -> None:
        self._events.append(Connected(peer) if peer in self._links else Disconnected(peer))

    def send(self, peer: Address, message: object) -> bool:
        link = self._links.get(peer)
        if link is None:
            self._events.append(Disconnected(peer))
            return False
        if len(link.outgoing) > QUEUE_SIZE_MAX:
            return False
        assert isinstance(message, (Request, Response))
        parts = link.conversation.encode(message)
        size = 1 + sum(memoryview(part).nbytes for part in parts)
        link.outgoing += size.to_bytes(4, "big") + (b"Q" if isinstance(message, Request) else b"A")
        for part in parts:
            link.outgoing += part
        self._write(link)
        return True

    def poll(self, timeout_ns: int) -> Iterable[TransportEvent]:
        if self._address is None:
            return ()
        reading = {link.end.fileno(): link for link in self._links.values() if not link.paused}
        writing = [link.end.fileno() for link in self._links.values() if link.outgoing]
        timeout = 0 if self._events else timeout_ns / 1e9
        readable, _, _ = select.select([self._woken, *reading], writing, [], timeout)
        for link in list(self._links.values()):
            self._write(link)
        for descriptor in readable:
            if descriptor == self._woken:
                os.read(self._woken, 4096)
            else:
                self._read(reading[descriptor])
        events, self._events = self._events, deque()
        return events

    def _write(self, link: _Link) -> None:
        try:
            while link.outgoing:
                del link.outgoing[: os.write(link.end.fileno(), memoryview(link.outgoing)[: 1 << 20].tobytes())]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._lost(link)

    def _read(self, link: _Link) -> None:
        try:
            while data := os.read(link.end.fileno(), 1 << 20):
                link.incoming += data
            self._lost(link)
        except BlockingIOError:
            pass
        try:
            while len(link.incoming) >= 4:
                size = int.from_bytes(link.incoming[:4], "big")
                if not 1 <= size <= FRAME_SIZE_MAX:
                    raise RemoteProtocolError(f"{link.conversation.peer} announces a frame of {size} bytes")
                if len(link.incoming) < 4 + size:
                    return
                kind, frame = link.incoming[4:5], link.incoming[5 : 4 + size]
                del link.incoming[: 4 + size]
                decode = link.conversation.decode_request if kind == b"Q" else link.conversation.decode_response
                self._events.append(Received(link.conversation.peer, decode(frame)))
        except ProtocolError:  # the peer does not speak the protocol
            self._lost(link)

    def _lost(self, link: _Link) -> None:
        link.conversation.forget()
        if self._links.pop(link.conversation.peer, None) is not None:
            self._events.append(Disconnected(link.conversation.peer))

    def pause(self, peer: Address) -> None:
        self._links[peer].paused = True

    def resume(self, peer: Address) -> None:
        self._links[peer].paused = False

    def disconnect(self, peer: Address) -> None:
        self._links[peer].conversation.forget()

    def wake(self) -> None:
        os.write(self._waker, b"!")

    def close(self) -> None:
        if self._address is not None:
            self._address, self._links = None, {}
            os.close(self._woken)
            os.close(self._waker)

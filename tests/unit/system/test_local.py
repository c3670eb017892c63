"""The transport between endpoints of one process."""

from __future__ import annotations

import threading

import pytest

from pyreplog.errors import LocalProtocolError
from pyreplog.ports import Connected, Disconnected, Received, TransportEvent
from pyreplog.system import LocalNetwork, LocalTransport
from pyreplog.system.local import QUEUE_MAX


def pair() -> tuple[LocalNetwork, LocalTransport, LocalTransport]:
    """Two endpoints that listen."""
    network = LocalNetwork()
    one, two = network.endpoint(), network.endpoint()
    assert one.listen("one") == "one"
    two.listen("two")
    return network, one, two


def test_messages_are_handed_over() -> None:
    """The very object arrives, in order, with the sender's address; poll empties the inbox and never waits."""
    _, one, two = pair()
    messages = [object() for _ in range(5)]
    for message in messages:
        assert one.send("two", message)
    events = list(two.poll(0))
    assert [event.message for event in events if isinstance(event, Received)] == messages
    assert {event.peer for event in events} == {"one"}
    assert list(two.poll(10**18)) == []


def test_who_has_news_is_entered_once() -> None:
    """However much waits at an endpoint, the network names it once, until it is taken out."""
    network, one, two = pair()
    for _ in range(3):
        one.send("two", "x")
    two.wake()
    assert list(network.ready) == [two]
    network.ready.popleft().is_ready = False
    one.send("two", "x")
    assert list(network.ready) == [two]


def test_nobody_there() -> None:
    """Sending to nobody takes nothing and says so; connecting says who is there; who leaves is missed by all."""
    _, one, two = pair()
    assert not one.send("three", "x")
    assert list(one.poll(0)) == [Disconnected("three")]
    one.connect("two")
    one.connect("three")
    assert list(one.poll(0)) == [Connected("two"), Disconnected("three")]
    one.send("two", "lost")
    two.close()
    two.close()
    assert list(one.poll(0)) == [Disconnected("two")]
    assert not two.send("one", "x")
    with pytest.raises(LocalProtocolError):
        one.listen("again")


def test_an_address_is_taken_once_at_a_time() -> None:
    """A second listener is refused; after the first closed the address is free, and old mail is gone."""
    network, one, two = pair()
    with pytest.raises(LocalProtocolError, match="two"):
        network.endpoint().listen("two")
    one.send("two", "for the dead")
    two.close()
    successor = network.endpoint()
    successor.listen("two")
    one.send("two", "for the living")
    assert [event.message for event in successor.poll(0) if isinstance(event, Received)] == ["for the living"]


def test_queues_are_bounded() -> None:
    """A full inbox takes nothing more until it is polled."""
    _, one, two = pair()
    for number in range(QUEUE_MAX):
        assert one.send("two", number)
    assert not one.send("two", "too much")
    assert len(list(two.poll(0))) == QUEUE_MAX
    assert one.send("two", "room")


def test_pausing() -> None:
    """What a paused peer sends is kept, bounded too, and comes in order after resume; disconnecting drops it."""
    _, one, two = pair()
    two.pause("one")
    assert one.send("two", 1)
    assert one.send("two", 2)
    assert list(two.poll(0)) == []
    two.resume("one")
    assert [event.message for event in two.poll(0) if isinstance(event, Received)] == [1, 2]
    two.pause("one")
    for number in range(QUEUE_MAX):
        assert one.send("two", number)
    assert not one.send("two", "too much")
    two.disconnect("one")
    assert list(two.poll(0)) == []
    assert one.send("two", "anew")
    assert len(list(two.poll(0))) == 1


def test_waking_from_other_threads() -> None:
    """Each wake is noticed: the driver is notified, and the endpoint entered."""
    woken = threading.Semaphore(0)
    network = LocalNetwork(woken.release)
    endpoint = network.endpoint()
    endpoint.listen("one")
    threads = [threading.Thread(target=endpoint.wake) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(woken.acquire(blocking=False) for _ in range(8))
    assert endpoint in network.ready


def test_an_interrupted_end_is_told_to_all_by_the_next() -> None:
    """Nobody misses that an endpoint is gone because a signal handler came while others were told."""
    network, one, two = pair()
    three = network.endpoint()
    three.listen("three")

    class Interrupted(LocalTransport):
        """One that a signal handler comes in front of."""

        left = 1

        def deliver(self, event: TransportEvent) -> None:
            """The first time it is not."""
            if self.left:
                self.left = 0
                raise KeyboardInterrupt
            super().deliver(event)

    first = Interrupted(network)
    first.listen("a")
    last = network.endpoint()
    last.listen("z")
    with pytest.raises(KeyboardInterrupt):
        one.close()
    one.close()
    for other in (two, three, first, last):
        assert Disconnected("one") in list(other.poll(0))
    again = network.endpoint()
    again.listen("one")
    one.close()
    assert network.find("one") is again

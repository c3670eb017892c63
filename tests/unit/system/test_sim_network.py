"""The simulated network: what it may do it does, what it may not it does not, and the same seed does the same."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterable
from random import Random

import pytest

from pyreplog.errors import ClosedError, LocalProtocolError, OffsetOutOfRangeError
from pyreplog.ports import Connected, Disconnected, Received, Transport, TransportEvent
from pyreplog.testing import NetworkOptions, SimClock, SimNetwork, SimTransport
from pyreplog.testing.network import QUEUE_MAX
from tests.unit.system.test_system_disk import environment

MS = 1_000_000


def network(seed: int = 0, **options: float) -> SimNetwork:
    return SimNetwork(SimClock(), Random(seed), NetworkOptions(**options))  # type: ignore[arg-type]


def drain(net: SimNetwork) -> None:
    while net.next_arrival_ns is not None:
        net.deliver_next()


def messages(events: Iterable[TransportEvent]) -> list[object]:
    return [event.message for event in events if isinstance(event, Received)]


def pair(net: SimNetwork) -> tuple[SimTransport, SimTransport]:
    return net.endpoint("a"), net.endpoint("b")


class TestDelivery:
    def test_a_message_arrives_late_and_in_order(self) -> None:
        """Without faults every message arrives once, within the delays, in the order of its link, and the clock
        moves with it."""
        net = network(delay_min_ns=MS, delay_max_ns=5 * MS)
        a: Transport = net.endpoint("a")
        b: Transport = net.endpoint("b")
        begun = net.clock.monotonic_ns()
        for number in range(50):
            assert a.send("b", number)
        assert [*b.poll(0)] == []
        drain(net)
        assert messages(b.poll(0)) == [*range(50)]
        assert [*b.poll(0)] == []
        assert begun + MS <= net.clock.monotonic_ns() <= begun + 5 * MS

    def test_nothing_is_delivered_early(self) -> None:
        """What is due is delivered, what is not stays on its way."""
        net = network(delay_min_ns=MS, delay_max_ns=MS)
        a, b = pair(net)
        a.send("b", 1)
        net.clock.advance(MS - 1)
        assert net.deliver_due() == []
        net.clock.advance(1)
        a.send("b", 2)
        assert net.deliver_due() == ["b"]
        assert b.has_news
        assert messages(b.poll()) == [1]
        assert not b.has_news
        assert net.next_arrival_ns == net.clock.monotonic_ns() + MS

    @pytest.mark.parametrize(
        ("options", "same", "fewer", "more"),
        [
            ({"loss": 0.3}, True, True, False),
            ({"duplicate": 0.3}, False, False, True),
            ({"reorder": 0.5}, False, False, False),
        ],
    )
    def test_faults_happen(self, options: dict[str, float], same: bool, fewer: bool, more: bool) -> None:
        """Loss loses some, doubling doubles some, reordering reorders some; none does anything else."""
        net = network(3, **options)
        a, b = pair(net)
        for number in range(200):
            a.send("b", f"{number:03}")
        drain(net)
        got = messages(b.poll())
        assert (got == sorted(got, key=str)) == same
        assert (len(set(got)) < 200) == fewer
        assert (len(got) > len(set(got))) == more
        assert set(got) <= {f"{number:03}" for number in range(200)}

    def test_a_full_queue_says_so(self) -> None:
        """A link takes so many messages and no more, until some arrive; other links are not touched."""
        net = network()
        a, _ = pair(net)
        net.endpoint("c")
        assert [a.send("b", number) for number in range(QUEUE_MAX + 1)].count(False) == 1
        assert a.send("c", 1)
        drain(net)
        assert a.send("b", 1)

    def test_messages_are_copied_when_sent(self) -> None:
        """A message with ``materialised`` travels as its copy, a second copy of it as another, and one that cannot
        be copied is lost."""

        class Lazy:
            def __init__(self, data: bytearray) -> None:
                self.data = data

            def materialised(self) -> Lazy:
                if not self.data:
                    raise OffsetOutOfRangeError(0, 1, 2)
                return Lazy(bytearray(self.data))

        net = network(0, duplicate=1.0)
        a, b = pair(net)
        data = bytearray(b"before")
        a.send("b", Lazy(data))
        data[:] = b"after!"
        assert a.send("b", Lazy(bytearray()))
        drain(net)
        got = messages(b.poll())
        assert [bytes(message.data) for message in got if isinstance(message, Lazy)] == [b"before"] * 2
        assert got[0] is not got[1]
        assert net.lost == 1

    def test_a_given_hook_copies(self) -> None:
        """The network's owner may say how messages are copied."""
        net = SimNetwork(SimClock(), Random(0), materialise=lambda message: ("copy of", message))
        a, b = pair(net)
        a.send("b", 1)
        drain(net)
        assert messages(b.poll()) == [("copy of", 1)]


class TestCuts:
    def test_a_cut_is_one_way_and_silent(self) -> None:
        """Nothing passes the cut direction, not even what was on its way; the other direction works; healing brings
        nothing back."""
        net = network()
        a, b = pair(net)
        a.send("b", "on its way")
        net.cut("a", "b")
        assert a.send("b", "into the cut")
        b.send("a", "the other way")
        drain(net)
        assert ([*b.poll()], messages(a.poll())) == ([], ["the other way"])
        net.heal()
        a.send("b", "healed")
        drain(net)
        assert messages(b.poll()) == ["healed"]
        assert net.lost == 2

    def test_partition_and_isolate(self) -> None:
        """Groups hear only themselves; an isolated node hears nobody."""
        net = network()
        nodes = {name: net.endpoint(name) for name in "abcde"}

        def heard() -> dict[str, str]:
            for source, transport in nodes.items():
                for target in nodes:
                    if target != source:
                        transport.send(target, source)
            drain(net)
            return {
                name: "".join(sorted(str(message) for message in messages(node.poll()))) for name, node in nodes.items()
            }

        net.partition(["a", "b"], ["c", "d"])
        assert heard() == {"a": "be", "b": "ae", "c": "de", "d": "ce", "e": "abcd"}
        net.heal()
        net.isolate("b")
        assert heard() == {"a": "cde", "b": "", "c": "ade", "d": "ace", "e": "acd"}

    def test_a_slow_link_is_slow_one_way(self) -> None:
        """Slowness adds to every delay of its direction."""
        net = network(delay_min_ns=MS, delay_max_ns=MS)
        a, b = pair(net)
        net.slow("a", "b", 100 * MS)
        a.send("b", "slow")
        b.send("a", "fast")
        assert net.deliver_next() == "a"
        begun = net.clock.monotonic_ns()
        assert net.deliver_next() == "b"
        assert net.clock.monotonic_ns() == begun + 100 * MS

    def test_one_links_loss(self) -> None:
        """A link may be lossier than the rest."""
        net = network()
        a, b = pair(net)
        net.link("a", "b").loss = 1.0
        a.send("b", 1)
        b.send("a", 2)
        drain(net)
        assert ([*b.poll()], messages(a.poll())) == ([], [2])


class TestEndpoints:
    def test_connections(self) -> None:
        """Connecting is answered where somebody listens, refused where nobody does, silent across a cut; twice is
        harmless."""
        net = network()
        a, _ = pair(net)
        net.cut("a", "x")
        for peer in ("b", "b", "nobody", "x"):
            a.connect(peer)
        drain(net)
        a.connect("b")
        drain(net)
        assert sorted(map(str, a.poll())) == sorted(map(str, [Connected("b"), Disconnected("nobody")]))

    def test_a_peer_that_closes_is_told_of(self) -> None:
        """Those it spoke with hear of it; one that lost power is missed by nobody."""
        net = network()
        a, b = pair(net)
        c = net.endpoint("c")
        b.send("a", 1)
        c.send("a", 2)
        drain(net)
        b.close()
        net.vanish("c")
        drain(net)
        assert sorted(map(str, a.poll())) == sorted(map(str, [Received("b", 1), Received("c", 2), Disconnected("b")]))
        b.close()

    def test_a_successor_gets_nothing_meant_for_its_predecessor(self) -> None:
        """Messages sent before an address was taken over are lost; those sent after it arrive."""
        net = network()
        a, b = pair(net)
        a.send("b", "old")
        b.close()
        a.send("b", "to nobody")
        new = net.endpoint("b")
        a.send("b", "new")
        drain(net)
        assert messages(new.poll()) == ["new"]

    def test_the_last_words_of_the_dead_arrive(self) -> None:
        """What was on its way when its sender died may still be delivered."""
        net = network()
        a, b = pair(net)
        b.send("a", "last words")
        net.vanish("b")
        drain(net)
        assert messages(a.poll()) == ["last words"]

    def test_pause_and_resume(self) -> None:
        """What a paused peer sends is kept, in order, and others' messages pass it."""
        net = network()
        a, b = pair(net)
        c = net.endpoint("c")
        b.pause("a")
        for number in range(3):
            a.send("b", number)
        c.send("b", "c")
        drain(net)
        assert messages(b.poll()) == ["c"]
        assert not b.has_news
        b.resume("a")
        assert messages(b.poll()) == [0, 1, 2]

    def test_disconnect(self) -> None:
        """The peer hears of it, once."""
        net = network()
        a, b = pair(net)
        a.connect("b")
        a.disconnect("b")
        a.disconnect("b")
        drain(net)
        assert [*b.poll()] == [Disconnected("a")]

    def test_misuse(self) -> None:
        """One owner per address, one address per transport, nothing after a close."""
        net = network()
        a, _ = pair(net)
        with pytest.raises(LocalProtocolError):
            net.endpoint("a")
        with pytest.raises(LocalProtocolError):
            a.listen("c")
        with pytest.raises(ClosedError):
            net.endpoint().send("a", 1)
        a.wake()
        a.close()
        a.close()
        assert [*a.poll()] == []
        for use in (lambda: a.send("b", 1), lambda: a.connect("b"), lambda: a.listen("d")):
            with pytest.raises(ClosedError):
                use()


def chatter(seed: int) -> str:
    """Everything that happens in a lossy run of five nodes with cuts and restarts, as a digest."""
    random = Random(seed)
    net = SimNetwork(SimClock(), random, NetworkOptions(loss=0.1, duplicate=0.1, reorder=0.3))
    net.trace = []
    nodes = {f"n{number}": net.endpoint(f"n{number}") for number in range(5)}
    names = [*nodes]
    for step in range(2000):
        name = random.choice(names)
        choice = random.randrange(40)
        if choice == 0:
            net.partition(names[: random.randrange(5)], names[random.randrange(5) :])
        elif choice == 1:
            net.heal()
        elif choice == 2:
            nodes[name].close()
            nodes[name] = net.endpoint(name)
        elif choice < 25:
            nodes[name].send(random.choice(names), step)
        else:
            net.deliver_next()
            net.trace.extend(str(event) for event in nodes[name].poll())
    return hashlib.sha256("\n".join(net.trace).encode()).hexdigest()


def test_the_same_seed_gives_the_same_run() -> None:
    """A run follows from its seed alone, in any process, whatever its hash seed; another seed gives another run."""
    here = chatter(1)
    assert here == chatter(1)
    assert len({chatter(seed) for seed in range(10)}) == 10
    for hash_seed in ("0", "1", "4711"):
        command = [sys.executable, "-c", "from tests.unit.system.test_sim_network import chatter; print(chatter(1))"]
        ended = subprocess.run(
            command, env={**environment(), "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True
        )
        assert ended.stdout.strip() == here

"""Every transport of ours, and the example of the guide, does what a transport must."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from random import Random
from types import ModuleType

from pyreplog.ports import Clock, Transport
from pyreplog.system import LocalNetwork
from pyreplog.testing import SimClock, SimNetwork, TransportConformance

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "pipes.py"
ADDRESSES = ["one", "two", "three", "hub", *(f"peer-{number}" for number in range(8))]
SERVERS = ["controller-1", "controller-2", "controller-3"]
MEMBERS = [*SERVERS, "node-1", "node-2", "node-3", "admin-1", "client-1", "client-2"]


def example() -> ModuleType:
    """The module of the guide."""
    spec = importlib.util.spec_from_file_location("pipes", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["pipes"] = module
    spec.loader.exec_module(module)
    return module


class TestLocal(TransportConformance):
    """The one between nodes of one process: objects are handed over; whoever drives waits for all."""

    waits = False

    def setup_method(self) -> None:
        """A network."""
        self.network = LocalNetwork()

    def endpoint(self) -> Transport:
        """A new endpoint."""
        return self.network.endpoint()


class TestSimulated(TransportConformance):
    """The simulated one, without faults: moved by hand."""

    waits = False

    def setup_method(self) -> None:
        """A network."""
        self.network = SimNetwork(SimClock(), Random(0))

    def endpoint(self) -> Transport:
        """A new endpoint."""
        return self.network.endpoint()

    def clock(self) -> Clock:
        """Its own."""
        return self.network.clock

    def progress(self) -> None:
        """The next message arrives, or a little time passes."""
        if self.network.next_arrival_ns is None:
            self.network.clock.advance(100_000)
        else:
            self.network.deliver_next()


class TestPipes(TransportConformance):
    """The example of the guide."""

    def setup_method(self) -> None:
        """Pipes between all."""
        self.module = example()
        self.network = self.module.PipeNetwork(ADDRESSES)
        self.made: list[Transport] = []

    def endpoint(self) -> Transport:
        """A new endpoint."""
        transport: Transport = self.module.PipeTransport(self.network)
        self.made.append(transport)
        return transport

    def teardown_method(self) -> None:
        """No descriptor stays open."""
        for transport in self.made:
            transport.close()
        for ends in self.network.ends.values():
            for end in ends.values():
                end.close()

    def test_a_cluster_replicates(self) -> None:
        """With pipes between the members of a cluster."""
        self.network = self.module.PipeNetwork(MEMBERS)
        super().test_a_cluster_replicates()


def test_the_example_is_short() -> None:
    """The guide promises fewer than 150 lines."""
    assert len(EXAMPLE.read_text().splitlines()) < 150

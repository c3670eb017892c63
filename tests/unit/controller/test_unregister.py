"""Unregistering a broker that will not come back."""

from __future__ import annotations

from pyreplog.wire import BrokerHeartbeatRequest, ErrorCode, UnregisterBrokerRequest, UnregisterBrokerResponse
from tests.unit.controller.controller_setup import ControllerSetup


def unregister(setup: ControllerSetup, broker: int) -> UnregisterBrokerResponse:
    """Ask for it."""
    return setup.controller.unregister(UnregisterBrokerRequest(broker))


def test_only_a_fenced_broker_is_unregistered() -> None:
    """One that serves must stop first; one that is gone goes, and only once."""
    setup = ControllerSetup()
    refused = unregister(setup, 2)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "stop it first" in (refused.error_message or "")
    setup.kill(2)
    epoch = setup.epoch(2)
    assert unregister(setup, 2).error_code == 0
    assert sorted(setup.image.brokers) == [1, 3]
    again = unregister(setup, 2)
    assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert "registered are 1, 3" in (again.error_message or "")
    request = BrokerHeartbeatRequest(2, epoch, setup.image.offset)
    assert setup.controller.heartbeat(request, setup.now).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_the_others_go_on() -> None:
    """Its leaderships were moved when it was fenced; shutdowns, takeovers and sessions do without it, and it may
    register again under its id, with copies that nobody trusts."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.kill(1)
    assert unregister(setup, 1).error_code == 0
    assert (setup[key].leader, setup[key].isr) == (2, (2, 3))
    setup.take_over()
    setup.wait(2000, beating=[2, 3])
    setup.beat(3)
    assert not setup.beat(2, want_shut_down=True).should_shut_down
    setup.beat(3)
    assert setup.beat(2, want_shut_down=True).should_shut_down
    setup.up(1, {key: (0, 4)})
    assert setup[key].leader == 3
    assert 1 not in setup[key].isr


def test_a_last_copy_stays_eligible() -> None:
    """A partition without a leader keeps an unregistered member: its copy may be the last one."""
    setup = ControllerSetup()
    key = setup.topic(min_isr=1, replicas=(1,))
    setup.kill(1)
    assert unregister(setup, 1).error_code == 0
    assert setup[key].leader == -1
    assert 1 in setup[key].isr + setup[key].elr
    setup.up(1, {key: (0, 4)})
    setup.wait(1000, beating=[1, 2, 3])
    assert setup[key].leader == 1

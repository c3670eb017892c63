"""Registration, heartbeats, fencing, controlled shutdown."""

from __future__ import annotations

from pyreplog.wire import BrokerHeartbeatRequest, BrokerRegistrationRequest, ErrorCode
from tests.unit.controller.controller_setup import CLUSTER, MS, ControllerSetup


def test_broker_epoch_is_the_offset_of_its_record() -> None:
    """Broker epochs are unique and rise; the same incarnation gets the same one again."""
    setup = ControllerSetup(brokers=())
    setup.incarnations = {1: 0, 2: 0}
    setup.register(1)
    first = setup.epoch(1)
    assert first == setup.image.offset
    setup.register(2)
    assert setup.epoch(2) > first
    assert setup.register(1, same=True) == 0
    assert setup.epoch(1) == first


def test_another_cluster_is_refused() -> None:
    """A root of another cluster cannot join."""
    setup = ControllerSetup()
    answer = setup.controller.register(BrokerRegistrationRequest(1, "another", "x"), setup.now)
    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_a_second_incarnation_waits_for_the_first_ones_session() -> None:
    """F56: while the first is alive the second is a duplicate; after its session, or its death, it may come, with a
    new epoch."""
    setup = ControllerSetup()
    before = setup.epoch(1)
    assert setup.register(1) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    setup.wait(2900, beating=[2, 3])
    assert setup.register(1) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    setup.wait(200, beating=[2, 3])
    assert setup.register(1) == 0
    assert setup.epoch(1) > before
    setup.kill(2)
    assert setup.register(2) == 0


def test_unfenced_only_after_it_has_seen_its_own_registration() -> None:
    """A broker serves nothing before it has applied the metadata up to its own registration."""
    setup = ControllerSetup()
    setup.kill(1)
    setup.register(1)
    early = BrokerHeartbeatRequest(1, setup.epoch(1), setup.epoch(1) - 1)
    answer = setup.controller.heartbeat(early, setup.now)
    assert (answer.is_fenced, answer.is_caught_up) == (True, False)
    answer = setup.controller.heartbeat(BrokerHeartbeatRequest(1, setup.epoch(1), setup.epoch(1)), setup.now)
    assert (answer.is_fenced, answer.is_caught_up) == (False, True)


def test_heartbeats_of_former_lives_are_refused() -> None:
    """A heartbeat with an old broker epoch, of an unknown broker, or of one that is known to be dead changes
    nothing."""
    setup = ControllerSetup()
    key = setup.topic()
    old = setup.epoch(1)
    setup.kill(1)
    assert (
        setup.controller.heartbeat(BrokerHeartbeatRequest(1, old, 99), setup.now).error_code
        == ErrorCode.STALE_BROKER_EPOCH
    )
    setup.register(1, {key: (0, 0)})
    assert (
        setup.controller.heartbeat(BrokerHeartbeatRequest(1, old, 99), setup.now).error_code
        == ErrorCode.STALE_BROKER_EPOCH
    )
    assert setup.image.brokers[1].fenced
    assert (
        setup.controller.heartbeat(BrokerHeartbeatRequest(9, 1, 99), setup.now).error_code
        == ErrorCode.BROKER_ID_NOT_REGISTERED
    )


def test_silence_fences_one_after_the_other() -> None:
    """F45: two brokers that expire in one tick are fenced in turn, the second on the state after the first."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.wait(3100, beating=[3])
    assert (setup[key].leader, setup[key].isr, setup[key].elr) == (3, (3,), (2,))
    assert [broker.fenced for broker in setup.image.brokers.values()] == [True, True, False]


def test_a_broker_fenced_by_silence_comes_back_by_a_heartbeat() -> None:
    """The same incarnation is unfenced when it is heard of again; it is in no in-sync set until its leader proposes
    it."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.wait(3100, beating=[2, 3])
    assert setup[key].leader == 2
    assert not setup.beat(1).is_fenced
    assert setup[key].isr == (2, 3)


def test_nobody_is_fenced_for_a_session_after_the_start() -> None:
    """F43: a controller that starts gives everybody a whole session."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.restart()
    setup.wait(2900)
    assert setup[key].isr == (1, 2, 3)


def test_the_controllers_own_stall_is_nobodys_silence() -> None:
    """After the process stood still nobody is fenced for what it could not hear."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.now += 60_000 * MS
    setup.controller.extend_sessions(60_000 * MS - 100 * MS)
    setup.controller.tick(setup.now)
    assert setup[key].isr == (1, 2, 3)


def test_leaderless_partitions_keep_their_set_when_brokers_are_fenced() -> None:
    """Where nobody leads, silence takes nobody out: nothing can be committed without them."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.restart()
    setup.wait(5000)
    assert (setup[key].leader, setup[key].isr) == (-1, (1, 2, 3))
    for broker in (1, 2, 3):
        setup.up(broker, {key: (0, 4)})
    assert (setup[key].leader, setup[key].isr) == (1, (1, 2, 3))


def test_controlled_shutdown() -> None:
    """F46: a broker that wants to stop loses its leaderships first, and may stop only when all others have seen
    that."""
    setup = ControllerSetup()
    key = setup.topic()
    answer = setup.beat(1, want_shut_down=True)
    assert (setup[key].leader, setup[key].isr) == (2, (2, 3))
    assert not answer.should_shut_down, "the others have not seen it"
    setup.beat(2)
    assert not setup.beat(1, want_shut_down=True).should_shut_down
    setup.beat(3)
    answer = setup.beat(1, want_shut_down=True)
    assert (answer.should_shut_down, answer.is_fenced) == (True, True)
    assert setup.register(1, {key: (0, 3)}, clean=True) == 0, "it may come back at once"


def test_a_fenced_broker_may_stop_at_once() -> None:
    """Nothing has to be moved away from it."""
    setup = ControllerSetup()
    setup.kill(1)
    setup.register(1)
    assert setup.beat(1, want_shut_down=True).should_shut_down


def test_a_broker_may_ask_to_be_fenced() -> None:
    """One whose disk failed goes out of every set and loses its leaderships."""
    setup = ControllerSetup()
    key = setup.topic()
    assert setup.beat(1, want_fence=True).is_fenced
    assert (setup[key].leader, setup[key].isr) == (2, (2, 3))
    assert setup.beat(1, want_fence=True).is_fenced


def test_cluster_constant() -> None:
    """The tests' cluster id is what the setup registers with."""
    assert ControllerSetup().controller.cluster_id == CLUSTER


def test_one_incarnation_has_one_epoch() -> None:
    """A27: the same incarnation registers twice, because an answer was lost: it keeps its epoch, and no record is
    written."""
    setup = ControllerSetup()
    epoch, offset = setup.epoch(1), setup.image.offset
    assert setup.register(1, same=True) == 0
    assert (setup.epoch(1), setup.image.offset) == (epoch, offset)


def test_a_last_known_leader_is_not_elected_while_it_is_fenced() -> None:
    """F55: all members of both sets restarted without their data, and the last leader is known. Fenced it is not
    elected, and neither when it comes back: its log may lack committed records, so a person must ask."""
    setup = ControllerSetup()
    key = setup.topic(min_isr=1)
    setup.wait(3100, beating=[1])
    assert setup[key].isr == (1,)
    setup.kill(1)
    setup.register(1, {key: (0, 2)}, incomplete=[key])
    for _ in range(2):
        setup.wait(1000)
        assert (setup[key].leader, setup[key].isr, setup[key].elr) == (-1, (), ())
        setup.beat(1)
    found = setup.controller.elect_uncleanly("t", 0)
    assert found is not None
    assert setup[key].leader == 1

"""A controller that becomes active over a running cluster: nobody loses a leadership but those whose end is known, and
nothing is assumed that only its predecessor knew."""

from __future__ import annotations

from pyreplog.config import NodeConfig
from pyreplog.controller import Controller
from pyreplog.wire import (
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationChangeRecord,
    ErrorCode,
    PartitionChangeRecord,
    SuspectReplica,
)
from tests.unit.controller.controller_setup import MS, ControllerSetup

NOBODY = -1
SESSION = NodeConfig().session_timeout_ms


def test_nobody_is_fenced_for_a_whole_session() -> None:
    """F43: heartbeats are not yet heard; leaders, members and epochs stay, and no record is written. Who then stays
    silent is fenced after one session, not before."""
    setup = ControllerSetup()
    key = setup.topic()
    before = setup[key]
    setup.now += (SESSION - 100) * MS  # the former controller would soon have fenced them
    setup.take_over()
    assert setup.controller.take() == []
    assert setup[key] == before
    setup.wait(SESSION - 100)
    assert setup[key] == before
    setup.wait(200)
    assert all(broker.fenced for broker in setup.image.brokers.values())
    assert setup[key].leader == NOBODY


def test_a_heartbeat_goes_on_with_the_new_controller() -> None:
    """A broker needs no new registration, and its proposals are decided."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.take_over()
    assert setup.beat(1).error_code == 0
    assert not setup.beat(2).is_fenced
    assert setup.propose(key, [1, 2]).error_code == 0
    assert setup[key].isr == (1, 2)


def test_those_whose_end_was_told_are_fenced_at_once() -> None:
    """Only they: the first is fenced before the second is looked at (F45), so the set is never emptied by an old
    view, and the third leads."""
    setup = ControllerSetup()
    key = setup.topic(min_isr=1)
    other = setup.topic("other", replicas=(3, 1, 2))
    before = setup[other]
    setup.take_over(1, 2)
    assert [broker.broker_id for broker in setup.image.brokers.values() if broker.fenced] == [1, 2]
    assert (setup[key].leader, setup[key].isr) == (3, (3,))
    assert (setup[other].leader, setup[other].leader_epoch) == (3, before.leader_epoch)
    assert setup.beat(1).error_code == ErrorCode.STALE_BROKER_EPOCH, "that incarnation is dead"
    setup.up(1, {key: (0, 0)})
    assert not setup.image.brokers[1].fenced, "the next one is not"


def test_all_members_of_a_set_are_gone() -> None:
    """All of them stay members, because none left the set while another led: the best copy leads, not the one of
    whoever was fenced last."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.take_over(1, 2, 3)
    assert (setup[key].leader, setup[key].isr, setup[key].last_known_elr) == (NOBODY, (1, 2, 3), (1,))
    for broker, end in ((3, (0, 90)), (1, (0, 90)), (2, (0, 100))):
        setup.up(broker, {key: end})
    assert (setup[key].leader, setup[key].isr) == (2, (2,))


def test_the_end_of_an_earlier_incarnation_fences_nobody() -> None:
    """The broker was registered anew since: what was told of its former process does not concern it."""
    setup = ControllerSetup()
    setup.topic()
    earlier = setup.image.brokers[1].incarnation_id
    setup.kill(1)
    setup.up(1, clean=True)
    setup.controller = Controller(setup.image.copy(), setup.controller.config, setup.controller.random, "c")
    setup.controller.take_over(setup.now, {earlier})
    assert not setup.image.brokers[1].fenced


def test_a_fenced_broker_is_replaced_without_a_wait() -> None:
    """It has no lease, so the new controller need not know whether its process lives."""
    setup = ControllerSetup()
    setup.kill(3)
    setup.take_over()
    assert setup.register(3) == 0
    setup.take_over()
    assert setup.register(1) == ErrorCode.DUPLICATE_BROKER_REGISTRATION, "that one may still serve"


def test_what_the_former_controller_left_half_done_is_finished() -> None:
    """Its last records fenced a broker, and it ended before it could move that broker's leaderships."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.controller._write(BrokerRegistrationChangeRecord(1, setup.epoch(1), fenced=1))
    assert setup[key].leader == 1
    setup.take_over()
    assert (setup[key].leader, setup[key].isr) == (2, (2, 3))


def test_leaderless_partitions_hold_their_election() -> None:
    """A partition that waited for better candidates under the former controller waits anew, and then its best
    present member leads."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.kill(1, 2, 3)
    setup.restart()
    setup.up(1, {key: (0, 90)})
    setup.up(2, {key: (0, 100)})
    assert setup[key].leader == NOBODY
    setup.take_over()
    setup.wait(400, beating=[1, 2])
    assert setup[key].leader == NOBODY
    setup.wait(200, beating=[1, 2])
    assert (setup[key].leader, setup[key].isr) == (2, (2,)), "the suspects of the image are compared"


def test_suspects_are_in_the_records() -> None:
    """The image that a node builds from records alone has them: a registration writes them, a proposal clears
    them."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.kill(3)
    setup.controller.take()
    setup.kill(1, 2)
    setup.up(2, {key: (0, 7)})
    assert setup[key].suspects == (SuspectReplica(2, 0, 7),)
    changes = [record for _, record in setup.controller.take() if isinstance(record, PartitionChangeRecord)]
    assert changes[-1].suspects == (SuspectReplica(2, 0, 7),)
    setup.take_over()
    setup.up(1, {key: (0, 9)}, clean=True)
    assert setup[key].leader == 1
    assert setup.propose(key, [1, 2]).error_code == 0
    assert setup[key].suspects == ()


def test_no_incarnation_counts_as_begun() -> None:
    """Ends that were reported to the former controller may have grown since; the new one uses only reports of
    incarnations that register with it."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.restart()
    setup.up(2, {key: (0, 5)}, clean=True)
    assert setup.controller._sessions.began(2)
    setup.take_over()
    assert not setup.controller._sessions.began(2)
    assert not setup.controller.ends_are_known(key)
    old = BrokerHeartbeatRequest(2, setup.epoch(2), setup.image.offset - 1)
    assert setup.controller.heartbeat(old, setup.now).error_code == 0
    assert not setup.controller.ends_are_known(key)


def test_a_proposal_that_was_decided_before_is_not_decided_again() -> None:
    """The leader sends the same proposal again to the new controller: the partition epoch has moved on."""
    setup = ControllerSetup()
    key = setup.topic()
    epoch = setup[key].partition_epoch
    assert setup.propose(key, [1, 2], partition_epoch=epoch).error_code == 0
    decided = setup[key]
    setup.take_over()
    assert setup.propose(key, [1, 2], partition_epoch=epoch).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert setup[key] == decided


def test_a_proposal_of_a_gone_incarnation_is_refused() -> None:
    """It was on its way when its broker died."""
    setup = ControllerSetup()
    key = setup.topic()
    request = AlterPartitionRequest(2, setup.epoch(2), [])
    setup.take_over(2)
    assert setup.controller.alter_partition(request).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert setup[key].isr == (1, 3)


def test_producer_ids_begin_in_a_new_block() -> None:
    """No id is handed out twice, though the new controller does not know how many of a block are used."""
    setup = ControllerSetup()
    given = [setup.controller.init_producer_id() for _ in range(5)]
    setup.take_over()
    given += [setup.controller.init_producer_id() for _ in range(5)]
    assert len(set(given)) == 10
    assert given[5] == 1000


def test_a_broker_that_stops_is_not_let_go_early() -> None:
    """F46: the controller changes in the middle of a controlled shutdown. The next one lets the broker stop only
    after all others have seen the moves."""
    setup = ControllerSetup()
    key = setup.topic()
    assert not setup.beat(1, want_shut_down=True).should_shut_down
    assert setup[key].leader == 2
    setup.take_over()
    assert not setup.beat(1, want_shut_down=True).should_shut_down
    setup.beat(2)
    assert not setup.beat(1, want_shut_down=True).should_shut_down
    setup.beat(3)
    assert setup.beat(1, want_shut_down=True).should_shut_down

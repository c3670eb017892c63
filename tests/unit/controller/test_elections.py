"""Who leads after whom: ISR and ELR bookkeeping, elections, and elections after unclean starts."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.controller import MISSING, Election, MetadataImage, PartitionImage, ReplicaEnd
from pyreplog.controller.requested_elections import RequestedElections
from pyreplog.wire import (
    ELECT_PREFERRED,
    ELECT_UNCLEAN,
    PRODUCER_ID_BLOCK,
    BrokerHeartbeatRequest,
    ElectLeadersRequest,
    ElectLeadersTopic,
    ErrorCode,
    PartitionEnd,
    ReplicaStatus,
)
from tests.unit.controller.controller_setup import ControllerSetup

NOBODY = -1
FURTHEST = ReplicaEnd(99, 99)


def partition(isr: tuple[int, ...], elr: tuple[int, ...] = (), leader: int = NOBODY) -> PartitionImage:
    """A partition on brokers 1, 2, 3."""
    return PartitionImage((1, 2, 3), isr, elr, (), leader, 5, 9, False)


@pytest.mark.parametrize(
    ("isr", "elr", "next_isr", "min_isr", "lost", "expected"),
    [
        ((1, 2, 3), (), (1, 2), 2, (), ()),
        ((1, 2), (), (1,), 2, (), (2,)),
        ((1,), (2,), (), 2, (), (1, 2)),
        ((1,), (2,), (1,), 2, (2,), ()),
        ((1,), (2, 3), (1, 3), 2, (), ()),
        ((1,), (2, 3), (1, 3), 3, (), (2,)),
        ((1, 2, 3), (), (3,), 2, (1,), (2,)),
        ((1,), (), (), 1, (), (1,)),
        ((1,), (), (), 1, (1,), ()),
    ],
)
def test_elr_table(
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    next_isr: tuple[int, ...],
    min_isr: int,
    lost: tuple[int, ...],
    expected: tuple[int, ...],
) -> None:
    """KIP-966: at or above the minimum the ELR is empty; below it holds whoever was in ISR or ELR, is not in the
    ISR now, and lost nothing."""
    found = Election(partition(isr, elr), min_isr, lambda _: False, {}, {}).decide(next_isr, lost=lost)
    assert found.elr == expected


members = st.permutations([1, 2, 3]).flatmap(
    lambda order: st.integers(0, 3).map(lambda cut: tuple(sorted(order[:cut])))
)


@given(
    members,
    members,
    members,
    members,
    st.integers(1, 3),
    st.dictionaries(st.integers(1, 3), st.tuples(st.integers(-2, 2), st.integers(0, 3))),
    members,
    st.booleans(),
    st.integers(-1, 3),
    st.integers(-1, 3),
)
def test_what_always_holds_after_a_settlement(
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    up: tuple[int, ...],
    lost: tuple[int, ...],
    min_isr: int,
    ends: dict[int, tuple[int, int]],
    unclean: tuple[int, ...],
    patient: bool,
    leader: int,
    last: int,
) -> None:
    """S18 and L1: isr and elr are disjoint parts of what was isr or elr, without lost members; at or above the
    minimum the elr is empty; a leader is up and in the isr; with a newly elected leader no suspect is in the isr
    but its equals."""
    elr = () if len(isr) >= min_isr else tuple(one for one in elr if one not in isr)
    leader = leader if leader in isr else NOBODY
    reach = {member: ReplicaEnd(*end) for member, end in ends.items()}
    suspects = {member: end for member, end in reach.items() if member in unclean}
    before = partition(isr, elr, leader)._replace(last_known_elr=(last,) if leader == NOBODY else ())
    after = Election(before, min_isr, up.__contains__, suspects, reach).decide(isr, lost=lost, patient=patient)
    assert not set(after.isr) & set(after.elr)
    assert set(after.isr) | set(after.elr) <= (set(isr) | set(elr)) - set(lost)
    assert len(after.isr) < min_isr or after.elr == ()
    if after.leader != NOBODY:
        assert after.leader in after.isr
        assert after.leader in up
        assert not after.waits
        if after.leader != leader:
            for member in after.isr:
                assert member not in suspects or suspects[member] == suspects.get(after.leader)
            if after.leader in suspects:
                passed = [one for one in (*isr, *elr) if one in up and one not in suspects and one not in lost]
                assert not passed or after.leader == last, "a trusted one was passed over"
                assert all(reach.get(one, FURTHEST) <= suspects[last] for one in passed), (
                    "who may have more was passed over"
                )
    elif not patient:
        candidates = [one for one in (*after.isr, *after.elr) if one in up]
        assert all(suspects.get(one) == MISSING for one in candidates)


def test_first_in_replica_order_that_is_up_and_in_sync() -> None:
    """A clean election takes the first of the assignment that is in the ISR and up; the leader epoch grows by
    one."""
    setup = ControllerSetup()
    key = setup.topic(replicas=(3, 1, 2))
    assert setup[key].leader == 3
    epoch = setup[key].leader_epoch
    setup.kill(3)
    assert (setup[key].leader, setup[key].isr, setup[key].leader_epoch) == (1, (1, 2), epoch + 1)


def test_isr_below_the_minimum_keeps_who_was_in_it_eligible() -> None:
    """Brokers that die one after another go to the ELR below the minimum; whichever of them returns first,
    complete, leads."""
    for first in (2, 3):
        setup = ControllerSetup()
        key = setup.topic()
        setup.kill(1)
        setup.kill(2)
        assert (setup[key].isr, setup[key].elr, setup[key].leader) == ((3,), (2,), 3)
        setup.kill(3)
        assert (setup[key].isr, setup[key].elr, setup[key].leader) == ((), (2, 3), NOBODY)
        setup.up(1, {key: (0, 10)}, clean=True)
        assert setup[key].leader == NOBODY, "it left the ISR while the others went on"
        setup.up(first, {key: (0, 10)}, clean=True)
        assert (setup[key].leader, setup[key].isr) == (first, (first,))


def test_last_replica_standing_loses_its_tail() -> None:
    """F35: the last ISR member loses its tail in a power cut; another of the ELR leads, not it."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.kill(3)
    setup.kill(2)
    assert (setup[key].isr, setup[key].elr) == ((1,), (2,))
    setup.kill(1)
    assert setup.register(1, {key: (0, 5)}, incomplete=[key]) == 0
    setup.beat(1)
    assert (setup[key].leader, setup[key].elr) == (NOBODY, (2,))
    setup.up(2, {key: (0, 10)}, clean=True)
    assert (setup[key].leader, setup[key].isr) == (2, (2,))


def test_elr_is_emptied_when_the_minimum_is_reached_again() -> None:
    """V17: as soon as the ISR has the minimum again, the high watermark may move without the others: they are
    eligible no more."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.kill(3)
    setup.kill(2)
    assert setup[key].elr == (2,)
    setup.up(3, {key: (0, 10)})
    assert setup.propose(key, [1, 3]).error_code == 0
    assert (setup[key].isr, setup[key].elr) == ((1, 3), ())


def everybody_dies(min_isr: int = 2) -> tuple[ControllerSetup, tuple[str, int]]:
    """A whole cluster that died at once."""
    setup = ControllerSetup()
    key = setup.topic(min_isr=min_isr)
    setup.restart()
    assert (setup[key].isr, setup[key].leader) == ((1, 2, 3), NOBODY)
    return setup, key


@pytest.mark.parametrize("order", list(itertools.permutations([1, 2, 3])))
def test_after_unclean_starts_the_furthest_leads(order: tuple[int, ...]) -> None:
    """An election among unclean starters waits for all of them and takes the highest (last epoch, end), in whatever
    order they come."""
    ends = {1: (0, 90), 2: (0, 100), 3: (0, 95)}
    setup, key = everybody_dies()
    for count, broker in enumerate(order):
        setup.up(broker, {key: ends[broker]})
        assert (setup[key].leader == NOBODY) == (count < 2)
    assert setup[key].leader == 2
    assert (setup[key].isr, setup[key].elr) == ((2,), (1, 3)), "the shorter ones catch up before they count"


def test_a_later_epoch_beats_a_longer_log() -> None:
    """(last epoch, end) compares the epoch first."""
    setup, key = everybody_dies()
    for broker, end in ((1, (0, 500)), (2, (3, 20)), (3, (2, 400))):
        setup.up(broker, {key: end})
    assert setup[key].leader == 2


def test_equals_stay_in_sync() -> None:
    """Whoever reached exactly as far as the new leader holds the same log and stays in the set; from then on it is
    trusted."""
    setup, key = everybody_dies()
    for broker, end in ((1, (0, 90)), (2, (0, 100)), (3, (0, 100))):
        setup.up(broker, {key: end})
    assert (setup[key].leader, setup[key].isr, setup[key].elr) == (2, (2, 3), ())
    assert not setup.image.suspects()


def test_the_wait_ends_after_500_ms() -> None:
    """Who has not come within 500 ms of the first is not waited for; the best of those there leads."""
    setup, key = everybody_dies()
    setup.up(1, {key: (0, 90)})
    setup.up(3, {key: (0, 95)})
    setup.wait(400, beating=[1, 3])
    assert setup[key].leader == NOBODY
    setup.wait(200, beating=[1, 3])
    assert (setup[key].leader, setup[key].isr) == (3, (3,))
    setup.up(2, {key: (0, 100)})
    assert setup[key].leader == 3, "somebody leads already: it follows"
    assert 2 in setup[key].elr


def test_a_trusted_member_is_not_kept_waiting() -> None:
    """A clean starter leads at once, before suspects that reached further: it has all that is committed. They never
    led."""
    setup, key = everybody_dies()
    setup.up(2, {key: (0, 120)})
    assert setup[key].leader == NOBODY
    setup.up(1, {key: (0, 100)}, clean=True)
    assert (setup[key].leader, setup[key].isr) == (1, (1, 3)), "broker 3 may still come back clean; the suspect is out"
    setup.up(3, {key: (0, 100)})
    assert setup[key].isr == (1,), "it did not come back clean"


def test_incomplete_ones_never_lead() -> None:
    """A copy that may lack acknowledged records is no member any more, so the others need not wait for it, and
    alone it waits for ever."""
    setup, key = everybody_dies()
    setup.register(1, {key: (0, 100)}, incomplete=[key])
    setup.beat(1)
    assert setup[key].isr == (2, 3)
    setup.wait(1000, beating=[1])
    assert setup[key].leader == NOBODY
    setup.up(2, {key: (0, 90)})
    setup.up(3, {key: (0, 80)})
    assert setup[key].leader == 2


def test_all_incomplete_waits_for_a_person() -> None:
    """Where every copy may lack records nobody is elected, until a person asks for the best log; that election is
    marked as unclean."""
    setup, key = everybody_dies()
    for broker, end in ((1, (0, 90)), (2, (0, 100)), (3, (0, 95))):
        setup.register(broker, {key: end}, incomplete=[key])
        setup.beat(broker)
    setup.wait(2000, beating=[1, 2, 3])
    assert (setup[key].leader, setup[key].isr, setup[key].elr) == (NOBODY, (), ())
    assert setup.controller.elect_uncleanly("t", 0) == (2, setup[key].leader_epoch, 100, -1)
    assert (setup[key].leader, setup[key].isr, setup[key].recovering) == (2, (2,), True)
    assert setup[key].unclean_epoch == setup[key].leader_epoch
    assert not setup.controller.elect_uncleanly("t", 0), "somebody leads"
    assert setup.propose(key, [2], recovery=1).error_code == 0
    assert setup.propose(key, [2, 1], recovery=0).error_code == 0
    assert not setup[key].recovering


def test_the_last_who_left_is_kept_for_the_person_who_decides() -> None:
    """Where isr and elr are empty, the metadata still say who was in them last: the leader, or the one who came
    back with less."""
    for lost_while_leading in (True, False):
        setup = ControllerSetup()
        key = setup.topic()
        setup.kill(1)
        setup.kill(2)
        setup.register(2, {key: (0, 5)}, incomplete=[key])
        assert (setup[key].isr, setup[key].elr, setup[key].leader) == ((3,), (), 3)
        if not lost_while_leading:
            setup.kill(3)
            assert (setup[key].isr, setup[key].elr) == ((), (3,))
        setup.register(3, {key: (0, 5)}, incomplete=[key])
        if lost_while_leading:
            setup.kill(3)
            setup.register(3, {key: (0, 5)}, incomplete=[key])
        assert (setup[key].isr, setup[key].elr, setup[key].leader) == ((), (), NOBODY)
        assert setup[key].last_known_elr == (3,)


def test_replaced_disk_is_no_member() -> None:
    """A copy missing on another disk than before counts as lost: the empty replacement is out of ISR and ELR."""
    setup, key = everybody_dies()
    setup.up(1, {}, disk="a new one")
    assert setup[key].isr == (2, 3)
    setup.up(2, {key: (0, 10)})
    setup.up(3, {key: (0, 10)})
    assert setup[key].leader == 2


def test_copy_that_was_never_made() -> None:
    """A copy missing on the very disk it always had was never made, or taken away: it leads only when nobody has
    any."""
    setup, key = everybody_dies()
    setup.up(1, {})
    setup.up(2, {})
    setup.wait(2000, beating=[1, 2])
    assert setup[key].leader == NOBODY, "without the third nobody can tell"
    setup.up(3, {})
    assert (setup[key].leader, setup[key].isr) == (1, (1, 2, 3))

    setup, key = everybody_dies()
    setup.up(1, {})
    setup.up(2, {})
    setup.up(3, {key: (0, 10)})
    assert (setup[key].leader, setup[key].isr, setup[key].elr) == (3, (3,), ())


def test_a_suspect_is_trusted_again_once_the_leader_vouches() -> None:
    """After AlterPartition has put it into the set, a member that started uncleanly leads without a wait."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.kill(3)
    setup.kill(2)
    setup.up(2, {key: (0, 5)})
    assert (setup[key].isr, setup[key].elr) == ((1,), (2,))
    setup.kill(1)
    assert setup[key].leader == NOBODY, "a suspect waits for the other members"
    setup.up(1, {key: (0, 9)}, clean=True)
    assert setup[key].leader == 1
    assert setup.propose(key, [1, 2]).error_code == 0
    setup.kill(1)
    assert setup[key].leader == 2


def test_suspects_survive_a_restart_of_the_controller() -> None:
    """Being a suspect is part of the durable state: after a restart the same incarnation registers again and still
    waits."""
    setup, key = everybody_dies()
    setup.up(1, {key: (0, 90)})
    setup.restart()
    assert setup.register(1, {key: (0, 90)}, same=True) == 0
    setup.beat(1)
    assert setup[key].leader == NOBODY
    setup.up(2, {key: (0, 100)})
    setup.up(3, {key: (0, 100)})
    assert setup[key].leader == 2


def test_no_leader_goes_on_in_its_old_epoch() -> None:
    """When the controller starts again every leader epoch grows, also where the same broker leads on."""
    setup = ControllerSetup()
    key = setup.topic()
    epoch = setup[key].leader_epoch
    setup.restart()
    for broker in (1, 2, 3):
        assert setup.register(broker, {key: (0, 7)}, same=True) == 0
        setup.beat(broker)
    assert setup[key].leader == 1
    assert setup[key].leader_epoch == epoch + 2
    assert setup[key].isr == (1, 2, 3), "they went on running: nobody left the set"


@pytest.mark.parametrize("order", list(itertools.permutations([1, 2, 3])))
@pytest.mark.parametrize("controllers", [1, 2])
def test_who_led_before_leads_again(order: tuple[int, ...], controllers: int) -> None:
    """Everybody stops in order and starts again, one after the other: with acks=1 the leader alone may have what it
    acknowledged last, so nobody leads before it is back; nor where a controller came and went before anybody was
    back."""
    setup = ControllerSetup()
    key = setup.topic(replicas=(3, 1, 2))
    setup.kill(3)
    setup.up(3, {key: (0, 7)}, clean=True)
    assert setup.propose(key, [1, 2, 3]).error_code == 0
    for _ in range(controllers):
        setup.restart()
    for broker in order:
        assert setup[key].leader == (1 if 1 in order[: order.index(broker)] else NOBODY)
        setup.up(broker, {key: (1, 9 if broker == 1 else 7)}, clean=True)
    assert setup[key].leader == 1


def test_who_led_before_is_waited_for_500_ms() -> None:
    """Where it stays away another one leads then; and at once, where it comes back without its copy."""
    for back in (False, True):
        setup = ControllerSetup()
        key = setup.topic()
        setup.restart()
        setup.up(2, {key: (0, 7)}, clean=True)
        setup.up(3, {key: (0, 7)}, clean=True)
        if back:
            setup.up(1, disk="another")
        else:
            setup.wait(400, beating=(2, 3))
            assert setup[key].leader == NOBODY
            setup.wait(100, beating=(2, 3))
        assert setup[key].leader == 2


@pytest.mark.parametrize("order", list(itertools.permutations([1, 2, 3])))
def test_who_led_before_leads_again_when_the_close_was_cut_short(order: tuple[int, ...]) -> None:
    """A kill in the middle of a close: the followers had stopped in order, their leader had not. By its report it
    holds all they hold, and with acks=1 it alone may have the rest."""
    for clean in ((2, 3), (2,)):
        setup = ControllerSetup()
        key = setup.topic()
        setup.restart()
        for broker in order:
            setup.up(broker, {key: (0, 9 if broker == 1 else 7)}, clean=broker in clean)
        assert setup[key].leader == 1
        assert not setup.image.suspects(), "it is trusted again"


@pytest.mark.parametrize("order", list(itertools.permutations([1, 2, 3])))
def test_who_led_before_leads_again_when_the_opening_was_cut_short(order: tuple[int, ...]) -> None:
    """A kill while only the last leader is back after everybody had stopped in order: it is the one that is unclean
    then."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.restart()
    setup.up(1, {key: (0, 9)}, clean=True)
    assert setup[key].leader == 1
    setup.restart()
    for broker in order:
        setup.up(broker, {key: (0, 9 if broker == 1 else 7)}, clean=broker != 1)
    assert setup[key].leader == 1


@pytest.mark.parametrize("end", [(0, 6), (-1, 0), None])
@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_who_led_before_and_lacks_something_does_not_lead_again(
    order: tuple[int, ...], end: tuple[int, int] | None
) -> None:
    """Where it was cut short it leads only if it reaches as far as every trusted one that is there: else it lost
    what they may have."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.restart()
    for broker in order:
        found = (0, 7) if broker == 2 else end
        setup.up(broker, None if found is None else {key: found}, clean=broker == 2)
    assert setup[key].leader == 2
    assert 1 not in setup[key].isr


def test_who_went_on_running_may_have_fetched_more_than_it_said() -> None:
    """The controller alone died. A follower that went on says how far it reaches when it registers again, and
    fetches more before it hears that nobody leads. So its leader of before, when it comes back uncleanly, is not
    known to hold all that one holds."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.restart()
    assert setup.register(2, {key: (0, 7)}, same=True) == 0
    assert setup.register(1, {key: (0, 7)}) == 0
    setup.beat(2)
    setup.beat(1)
    assert setup[key].leader == 2


def test_what_a_running_incarnation_says_again_changes_nothing() -> None:
    """A member that has not heard yet that its leader vouched for it calls itself incomplete when it registers
    again (the controller came back): the controller knows better."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.kill(3)
    setup.register(3, {key: (0, 0)}, incomplete=[key])
    setup.beat(3)
    assert setup.propose(key, [1, 2, 3]).error_code == 0
    setup.restart()
    for broker in (1, 2, 3):
        assert setup.register(broker, {key: (0, 9)}, same=True, incomplete=[key] if broker == 3 else []) == 0
        setup.beat(broker)
    assert (setup[key].leader, setup[key].isr) == (1, (1, 2, 3))


@pytest.mark.parametrize("left", [True, False], ids=["left", "last"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_who_died_before_it_heard_that_it_is_complete_stays_a_member(left: bool, clean: bool) -> None:
    """A member whose process died, or stopped, after its leader had vouched for it and before it heard of that is
    as good as one that had heard: trusted after a clean stop, else a suspect, that leads where nobody reaches
    further. The next incarnations, too."""
    setup = ControllerSetup()
    key = setup.topic(min_isr=1)
    setup.kill(3)
    setup.register(3, {key: (0, 0)}, incomplete=[key])
    assert setup[key].isr == (1, 2)
    setup.beat(3)
    assert setup.propose(key, [1, 2, 3]).error_code == 0
    setup.kill(2)
    setup.kill(*([3, 1] if left else [1, 3]))
    assert setup[key].elr == ((1,) if left else (3,)), "who left the set while another led is no member any more"
    for _ in range(3):
        assert setup.register(3, {key: (0, 9)}, clean=clean, incomplete=[key], reported=True) == 0
        assert (3 in setup[key].elr) is not left
        setup.beat(3)
        setup.wait(600, beating=[3])
        assert setup[key].leader == (NOBODY if left else 3)
        setup.kill(3)


def test_who_lost_records_since_somebody_vouched_for_it_is_out() -> None:
    """The same, but the copy lost something after it was put in the set; or it lies on another disk than the one
    that was."""
    for more in ({"reported": False}, {"reported": True, "disk": "another one"}):
        setup = ControllerSetup()
        key = setup.topic(min_isr=1)
        setup.kill(3)
        setup.register(3, {key: (0, 0)}, incomplete=[key])
        setup.beat(3)
        assert setup.propose(key, [1, 2, 3]).error_code == 0
        setup.kill(2, 1)
        assert (setup[key].leader, setup[key].isr) == (3, (3,))
        setup.kill(3)
        setup.register(3, {key: (0, 9)}, incomplete=[key], **more)
        setup.beat(3)
        setup.wait(1000, beating=[3])
        assert (setup[key].leader, setup[key].isr, setup[key].elr) == (NOBODY, (), ())


def test_nobody_vouched_for_a_copy_made_after_a_missing_one() -> None:
    """Who is eligible only because its copy was missing, so that it may never have had one, is so no longer with
    what it has made and fetched since: that is not what it was put in the set with."""
    setup = ControllerSetup()
    key = setup.topic(min_isr=2)
    setup.kill(3, 2)
    assert (setup[key].isr, setup[key].elr) == ((1,), (2,))
    setup.register(2, {})
    setup.beat(2)
    assert setup[key].elr == (2,)
    setup.kill(2)
    setup.register(2, {key: (0, 5)}, incomplete=[key], reported=True)
    assert setup[key].elr == ()
    setup.kill(1)
    setup.beat(2)
    setup.wait(1000, beating=[2])
    assert setup[key].leader == NOBODY


def test_a_new_topic_outlives_nodes_that_never_made_their_copies() -> None:
    """Members die before they made a copy, while another leads; then that one's disk is lost too, before anything
    could be committed: the topic goes on, empty."""
    setup = ControllerSetup()
    key = setup.topic(min_isr=3)
    setup.kill(2, 3)
    setup.up(2, {})
    setup.up(3, {})
    assert (setup[key].leader, setup[key].isr, setup[key].elr) == (1, (1,), (2, 3))
    setup.kill(1)
    assert setup[key].leader == NOBODY, "broker 1 may have something"
    setup.up(1, {}, disk="a new one")
    assert (setup[key].leader, setup[key].isr) == (2, (2, 3))


def test_an_unclean_election_asks_the_living_how_far_they_reach() -> None:
    """What a broker reported when it registered is no measure once it went on; the one that reaches furthest now
    leads, and the loss is stated."""
    setup = ControllerSetup()
    key = setup.topic(min_isr=1)
    assert setup.propose(key, [1]).error_code == 0
    setup.kill(1)
    request = ElectLeadersRequest(ELECT_UNCLEAN, [ElectLeadersTopic("t", [0])])
    assert setup[key].leader == NOBODY
    assert not RequestedElections(setup.controller).ends_are_known(request)
    setup.beat(2, partition_ends=[PartitionEnd(key[0], 0, 0, 7)])
    assert not RequestedElections(setup.controller).ends_are_known(request)
    setup.beat(3, partition_ends=[PartitionEnd(key[0], 0, 0, 9)])
    assert RequestedElections(setup.controller).ends_are_known(request)
    ((result,),) = [
        topic.partition_result for topic in RequestedElections(setup.controller).elect(request).replica_election_results
    ]
    assert (result.error_code, setup[key].leader) == (0, 3)
    assert (
        result.error_message
        == f"node 3 leads in epoch {setup[key].leader_epoch}; all records from offset 9 on are lost"
    )
    ((result,),) = [
        topic.partition_result for topic in RequestedElections(setup.controller).elect(request).replica_election_results
    ]
    assert result.error_code == ErrorCode.ELECTION_NOT_NEEDED


def test_what_was_reported_before_the_leader_was_lost_counts_for_nothing() -> None:
    """A heartbeat that was sent before its sender knew that nobody leads says nothing about now."""
    setup = ControllerSetup()
    key = setup.topic(min_isr=1)
    assert setup.propose(key, [1]).error_code == 0
    before = setup.image.offset
    setup.kill(1)
    late = BrokerHeartbeatRequest(2, setup.epoch(2), before, partition_ends=[PartitionEnd(key[0], 0, 0, 3)])
    setup.controller.heartbeat(late, setup.now)
    setup.beat(3, partition_ends=[PartitionEnd(key[0], 0, 0, 1)])
    assert not RequestedElections(setup.controller).ends_are_known(ElectLeadersRequest(ELECT_UNCLEAN, None))


def test_known_ends_of_the_absent_are_stated() -> None:
    """Where one that is away had said that it reaches further, the lost range has an end."""
    setup, key = everybody_dies()
    for broker, end in ((1, (0, 90)), (2, (0, 100)), (3, (0, 95))):
        setup.register(broker, {key: end}, incomplete=[key])
    setup.beat(1)
    setup.beat(3)
    found = setup.controller.elect_uncleanly("t", 0)
    assert found is not None
    assert (found.leader, found.start, found.end) == (3, 95, 100)
    assert "offsets 95 to 99 are lost" in str(found)


def test_preferred_leaders() -> None:
    """The first replica leads again where it is in sync; the image survives a restatement with its unclean epoch
    and producer ids."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.kill(1)
    assert setup[key].leader == 2
    request = ElectLeadersRequest(ELECT_PREFERRED, None)

    def code() -> int:
        ((result,),) = [
            topic.partition_result
            for topic in RequestedElections(setup.controller).elect(request).replica_election_results
        ]
        return result.error_code

    assert code() == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    setup.up(1, {key: (0, 0)})
    assert setup.propose(key, [2, 3, 1]).error_code == 0
    epoch = setup[key].leader_epoch
    assert code() == 0
    assert (setup[key].leader, setup[key].leader_epoch) == (1, epoch + 1)
    assert code() == ErrorCode.ELECTION_NOT_NEEDED


def test_producer_ids_are_never_handed_out_twice() -> None:
    """Not by one controller, and not by the next one, which begins a new block."""
    setup = ControllerSetup()
    ids = [setup.controller.init_producer_id() for _ in range(PRODUCER_ID_BLOCK + 5)]
    setup.restart()
    ids += [setup.controller.init_producer_id() for _ in range(5)]
    assert len(dict.fromkeys(ids)) == len(ids)
    assert ids[-5:] == list(range(2 * PRODUCER_ID_BLOCK, 2 * PRODUCER_ID_BLOCK + 5))
    copy = MetadataImage()
    for record in setup.image.records():
        copy.apply(0, record)
    assert copy.next_producer_id == setup.image.next_producer_id == 3 * PRODUCER_ID_BLOCK


def test_a_copy_that_is_damaged_at_run_time() -> None:
    """It counts no more, whoever leads, and nothing that was known of it counts for the next one there: that has a
    new epoch. The last member stays."""
    setup = ControllerSetup()
    key = setup.topic(min_isr=2)
    setup.beat(3, partition_ends=[PartitionEnd(*key, status=ReplicaStatus.MISSING)])
    assert (setup[key].leader, setup[key].leader_epoch, setup[key].isr, setup[key].elr) == (1, 1, (1, 2), ())
    setup.beat(3, partition_ends=[PartitionEnd(*key, status=ReplicaStatus.MISSING)])
    assert (setup[key].leader, setup[key].leader_epoch, setup[key].isr) == (1, 2, (1, 2))
    assert setup.propose(key, [1, 2, 3]).error_code == 0
    setup.beat(1, partition_ends=[PartitionEnd(*key, status=ReplicaStatus.MISSING)])
    assert (setup[key].leader, setup[key].leader_epoch, setup[key].isr, setup[key].elr) == (2, 3, (2, 3), ())
    setup.kill(3)
    assert (setup[key].isr, setup[key].elr) == ((2,), (3,))
    setup.beat(2, partition_ends=[PartitionEnd(*key, status=ReplicaStatus.MISSING)])
    assert (setup[key].leader, setup[key].isr, setup[key].elr) == (NOBODY, (), (3,))
    alone = setup.topic("alone", min_isr=1, replicas=[1])
    setup.beat(1, partition_ends=[PartitionEnd(*alone, status=ReplicaStatus.MISSING)])
    assert (setup[alone].leader, setup[alone].leader_epoch, setup[alone].isr) == (1, 0, (1,))


def test_a_copy_a_part_of_which_is_damaged() -> None:
    """Another member leads in its place, once for each that says so, and everybody stays a member. It may lead
    again when it is all there is, and when it is another one: of another incarnation, or made anew."""
    setup = ControllerSetup()
    key = setup.topic(min_isr=2)

    def report(broker: int, status: ReplicaStatus = ReplicaStatus.DAMAGED) -> tuple[int, int]:
        setup.beat(broker, partition_ends=[PartitionEnd(*key, status=status)])
        return setup[key].leader, setup[key].leader_epoch

    assert report(3) == (1, 0), "it does not lead"
    assert report(1) == (2, 1), "not 3, which has the same trouble"
    assert report(1) == (2, 1)
    assert report(2) == (2, 1), "there is no better one"
    assert (setup[key].isr, setup[key].elr) == ((1, 2, 3), ())
    RequestedElections(setup.controller).elect(ElectLeadersRequest(ELECT_PREFERRED, None))
    assert setup[key].leader == 1, "who asks for it gets it"
    assert report(1) == (1, 2), "of all three the same is known"
    setup.kill(2)
    assert (setup[key].leader, setup[key].isr) == (1, (1, 3)), "some copy is better than none"
    setup.kill(3)
    setup.register(3)
    setup.beat(3)
    assert setup.propose(key, [1, 3]).error_code == 0
    assert report(1)[0] == 3, "whose trouble is of another incarnation"
    report(1, ReplicaStatus.MISSING)
    assert setup.propose(key, [3, 1]).error_code == 0
    assert report(3)[0] == 1, "whose copy was made anew"


def test_a_copy_that_could_not_be_made() -> None:
    """While a member says so, others are elected before it; it leads where there is no other. Once it is there, it
    is as good as any."""
    setup = ControllerSetup()
    key = setup.topic(min_isr=1)
    setup.beat(2, partition_ends=[PartitionEnd(*key, status=ReplicaStatus.DAMAGED)])
    setup.kill(1)
    assert setup[key].leader == 3
    setup.register(1)
    setup.beat(1)
    assert setup.propose(key, [1, 2, 3]).error_code == 0
    setup.beat(2, partition_ends=[PartitionEnd(*key, status=ReplicaStatus.RESTORED)])
    setup.beat(1, partition_ends=[PartitionEnd(*key, status=ReplicaStatus.DAMAGED)])
    setup.beat(3, partition_ends=[PartitionEnd(*key, status=ReplicaStatus.DAMAGED)])
    assert setup[key].leader == 2
    setup.beat(2, partition_ends=[PartitionEnd(*key, status=ReplicaStatus.DAMAGED)])
    setup.kill(2)
    assert setup[key].leader == 1

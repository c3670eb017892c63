"""Admin: the blocking face of :class:`pyreplog.client.Admin`. Thread-safe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn, SupportsIndex

from pyreplog.client import Admin as Machine
from pyreplog.client import Answer
from pyreplog.config import (
    INT32_MAX,
    INT64_MAX,
    check_flag,
    check_seconds,
    whole,
)
from pyreplog.errors import (
    BrokerNotAvailableError,
    ConfigError,
    InternalError,
    NotControllerError,
    PyreplogError,
    UnknownTopicError,
    cluster_error,
)
from pyreplog.log import is_internal
from pyreplog.runtime.client_face import ClientFace
from pyreplog.runtime.descriptions import TopicDescription, description_of
from pyreplog.runtime.driver import DrivenMachine, Driver
from pyreplog.runtime.error_advice import Advice
from pyreplog.runtime.folder_opening import check_name
from pyreplog.runtime.growth import Growth
from pyreplog.runtime.key_check import KeyCheck
from pyreplog.runtime.listed_partitions import ListedPartition, ListedState, filter_of, listed_partitions
from pyreplog.runtime.node_group import NodeGroup
from pyreplog.runtime.reassignments import Reassignments
from pyreplog.runtime.rebalancing import Rebalancing
from pyreplog.runtime.recovered_partitions import ElectedLeader, RecoveredPartition, elected
from pyreplog.runtime.topic_changes import TopicChanges
from pyreplog.runtime.topic_compactor import TopicCompactor
from pyreplog.values import QuorumInfo
from pyreplog.wire import (
    NO_ERROR,
    DescribeConfigsResponse,
    DescribeTopicPartitionsResponse,
    ElectLeadersResponse,
    ErrorCode,
)

NODES_TIMEOUT_S = 10.0
"""Seconds that a call waits until a restarted controller has heard from a node."""
LACK_PATIENCE_S: Final = 1.0
"""Seconds that a call waits while a majority of the voters is down, or its own timeout if that is shorter. A node that
is being started is up sooner."""
LACK_CHECK_S: Final = 0.05
"""A call that waits looks this often whether a majority is down."""
__all__ = ["Admin"]


class Admin(TopicChanges, Rebalancing, Reassignments, Growth, ClientFace[Machine]):
    """Makes, changes and describes topics, deletes records, elects leaders. It is ``cluster.admin``."""

    def __init__(
        self,
        driver: Driver,
        advice: Advice,
        make: Callable[[], tuple[Machine, DrivenMachine]],
        nodes: NodeGroup,
        on_change: Callable[[str | None], None],
        on_new: Callable[[str], None],
        compactor: TopicCompactor,
    ) -> None:
        """Called by the cluster only. ``make`` returns the machine; it is called again after an interruption.
        ``on_change`` is called after a topic (None: any) has other partitions or settings, ``on_new`` after one was
        made or deleted."""
        self._driver = driver
        self._advice = advice
        self._make = make
        self._nodes = nodes
        self._on_change = on_change
        self._on_new = on_new
        self._compactor = compactor
        self._key_check = KeyCheck(driver, nodes)
        self._current = make()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("an Admin cannot be copied or pickled: it belongs to its cluster, in this process")

    def topics(self, *, internal: bool = False) -> list[str]:
        """The names of the topics, sorted; with ``internal`` also those that begin with ``__``, which by Kafka's rule
        belong to a system itself."""
        answer: DescribeTopicPartitionsResponse = self._answer(lambda machine: machine.describe_topics())
        names = [topic.name for topic in answer.topics if topic.name is not None]
        return sorted(name for name in names if internal or not is_internal(name))

    def describe(self, name: str) -> TopicDescription:
        """One topic's partitions and settings. Raises UnknownTopicError."""
        return self._describe(name, None)

    def _describe(self, name: str, patience: float | None) -> TopicDescription:
        check_name(name)
        topics: DescribeTopicPartitionsResponse
        configs: DescribeConfigsResponse
        # Asked together, so that the controller proves only once that it still leads.
        topics, configs = self._answers(
            lambda machine: machine.describe_topics([name]),
            lambda machine: machine.describe_configs([name]),
            patience=patience,
        )
        topic = topics.topics[0]
        if topic.error_code == UnknownTopicError.code:
            raise self._advice.unknown_topic(name)
        if topic.error_code != NO_ERROR:
            raise cluster_error(topic.error_code, repr(name))
        for result in configs.results:
            if result.error_code == UnknownTopicError.code:
                raise self._advice.unknown_topic(name)
            if result.error_code != NO_ERROR:
                raise cluster_error(result.error_code, result.error_message or repr(name))
        return description_of(topics, configs)

    def list_partitions(self, state: ListedState) -> list[ListedPartition]:
        """The partitions in a state, sorted by topic and number, with the reason, the lag and an estimate for each
        replica out of sync.

        ``state``: ``"under_replicated"`` (a replica is out of sync), ``"under_min_isr"`` (fewer replicas are in sync
        than ``min.insync.replicas``, so sends with acks="all" are refused), ``"at_min_isr"`` (exactly so many are), or
        ``"offline"`` (no leader). Raises ConfigError, NotControllerError.
        """
        wanted = filter_of(state)
        answer: DescribeTopicPartitionsResponse = self._answer(lambda machine: machine.describe_topics(state=wanted))
        return listed_partitions(answer)

    def describe_quorum(self) -> QuorumInfo:
        """The voters and the observers of the metadata log, and how far each has it, as the active controller knows
        them.

        Raises NotControllerError, which names the missing voters, if no majority of them is up.
        """
        found: QuorumInfo = self._answer(lambda machine: machine.describe_quorum())
        return found

    def delete_records(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """Delete the records below these offsets, by partition (-1: all committed records), on every live node. Return
        the new log start offsets.

        Raises OffsetOutOfRangeError for an offset above the high watermark, UnknownTopicError,
        BrokerNotAvailableError if a partition has no leader, RequestTimedOutError if a node is slow: the deletion goes
        on then.
        """
        if not hasattr(offsets, "items"):
            raise ConfigError(f"offsets is {offsets!r}; it must be a dict of offsets by partition, such as {{0: -1}}")
        check_name(topic)
        limits = {
            whole("a partition of offsets", number, 0, INT32_MAX): whole(
                f"the offset of partition {number}", offset, -INT64_MAX, INT64_MAX
            )
            for number, offset in offsets.items()
        }
        if not limits:
            self.describe(topic)  # raises UnknownTopicError
            return {}
        try:
            found: dict[int, int] = self._answer(lambda machine: machine.delete_records(topic, limits))
        except UnknownTopicError:
            raise self._unknown(topic, limits) from None
        return found

    def elect_leaders(
        self, topic: str, partitions: Sequence[int] = (0,), *, unclean: bool = False
    ) -> dict[int, ElectedLeader]:
        """Elect the preferred leaders (the first replicas) again. ``unclean``: if a partition has no leader because no
        live replica is known to have all records, elect the live replica with the longest log: **acknowledged records
        may be lost**.

        Returns the new leader of each partition that had an election, its epoch, and the offsets that are lost or may
        be. Partitions that needed no election are left out. Raises PreferredLeaderNotAvailableError,
        EligibleLeadersNotAvailableError, UnknownTopicError.
        """
        check_name(topic)
        check_flag("unclean", unclean)
        if isinstance(partitions, str) or not isinstance(partitions, Iterable):
            raise ConfigError(f"partitions is {partitions!r}; it must be a list of numbers, such as [0]")
        numbers = [whole("a partition", number, 0, INT32_MAX) for number in partitions]
        self._await_nodes(None)
        return self._elect(topic, numbers, unclean=unclean)

    def _elect(
        self, topic: str, numbers: Sequence[int], *, unclean: bool, dry_run: bool = False
    ) -> dict[int, ElectedLeader]:
        answer: ElectLeadersResponse = self._answer(
            lambda machine: machine.elect_leaders(topic, numbers, unclean=unclean, dry_run=dry_run)
        )
        found: dict[int, ElectedLeader] = {}
        for result in answer.replica_election_results:
            for part in result.partition_result:
                if part.error_code == NO_ERROR:
                    found[part.partition_id] = elected(part)
                elif part.error_code == UnknownTopicError.code:
                    raise self._unknown(topic, numbers)
                elif part.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                    raise cluster_error(part.error_code, f"{topic}-{part.partition_id}")
        return found

    def recover_partition(
        self, topic: str, partition: int, *, dry_run: bool = False, timeout: float | None = 10.0
    ) -> RecoveredPartition:
        """Give a partition without a leader the best leader that is left: **acknowledged records may be lost**.

        Waits up to ``timeout`` seconds (None: for ever) for the nodes with a copy that are down, because one of them
        may need no loss. Then the live copy with the highest leader epoch and end leads. Returns the leader, its epoch,
        the offsets that are lost or may be (none if the partition has a leader), and the nodes that were missing.
        ``dry_run``: only say what would happen. Raises EligibleLeadersNotAvailableError if no node with a copy is up,
        UnknownTopicError.
        """
        check_name(topic)
        check_flag("dry_run", dry_run)
        number = whole("partition", partition, 0, INT32_MAX)
        patience = check_seconds("timeout", timeout)
        described = self.describe(topic)
        if number >= len(described.partitions):
            raise self._unknown(topic, [number])
        replicas = described.partitions[number].replicas
        controller = self._nodes.controller
        self._driver.wait_until(
            lambda: controller.leader_of(topic, number) >= 0 or not self._nodes.down_of(replicas), patience
        )
        missing = tuple(self._driver.run_exclusively(lambda: self._nodes.down_of(replicas)))
        found = self._elect(topic, [number], unclean=True, dry_run=dry_run).get(number)
        if found is None:  # it has a leader
            now = self.describe(topic).partitions[number]
            return RecoveredPartition(number, now.leader, now.leader_epoch, (), missing, is_done=True)
        return RecoveredPartition(number, found.leader, found.leader_epoch, found.lost, missing, is_done=not dry_run)

    def _unknown(self, topic: str, numbers: Iterable[int]) -> UnknownTopicError:
        """Return the error for a call that names an unknown topic, or unknown partitions of a topic."""
        try:
            count = len(self.describe(topic).partitions)
        except UnknownTopicError as error:
            return error
        number = next((number for number in numbers if number >= count), None)
        return UnknownTopicError(
            f"{topic!r} has partitions 0 to {count - 1}{'' if number is None else f', not {number}'}"
        )

    def _await_nodes(self, patience: float | None) -> float | None:
        """Wait until the controller has heard from a node, and return the rest of ``patience``.

        A controller that an interruption restarted can decide nothing before. If the wait is in vain, the caller sends
        its request all the same: the answer says what is wrong.
        """
        begun_ns = self._driver.monotonic_ns()
        self._driver.wait_until(
            self._nodes.are_known, NODES_TIMEOUT_S if patience is None else min(patience, NODES_TIMEOUT_S)
        )
        return None if patience is None else max(patience - (self._driver.monotonic_ns() - begun_ns) / 1e9, 0.0)

    def _answer(self, ask: Callable[[Machine], Answer], patience: float | None = None) -> Any:
        """Return the value of the answer to a question. ``patience``: see :meth:`_answers`."""
        return self._answers(ask, patience=patience)[0]

    def _answers(self, *asks: Callable[[Machine], Answer], patience: float | None = None) -> list[Any]:
        """Return the values of the answers to several questions, which are sent together. Several only read.

        While a majority of the voters is down it waits a second, or ``patience`` if that is shorter.
        """
        self._driver.check_free()
        self._nodes.check_up()
        while True:
            current = self._current
            machine, driven = current
            with driven.lock.enter():
                if current is not self._current:
                    continue
                machine.controllers = self._nodes.controller.addresses()
                answers = [ask(machine) for ask in asks]
            self._driver.mark_ready(driven)
            self._await_answers(current, answers, patience)
            failed = next((answer for answer in answers if answer.error is not None), None)
            if failed is None or failed.error is None:
                return [answer.value for answer in answers]
            with driven.lock.enter():  # _interrupted fails the answers and replaces the machine under it
                if (
                    current is self._current
                    or not failed.may_be_put_again
                    or not isinstance(failed.error, BrokerNotAvailableError)
                ):
                    raise self._explained(failed.error)

    def _await_answers(
        self, current: tuple[Machine, DrivenMachine], answers: Sequence[Answer], patience: float | None
    ) -> None:
        """Return when all are settled. Give them up if a majority of the voters is down for too long."""
        limit = LACK_PATIENCE_S if patience is None else min(patience, LACK_PATIENCE_S)
        since_ns = self._driver.monotonic_ns()
        for answer in answers:
            while not self._driver.wait(answer, min(LACK_CHECK_S, limit)):
                lack, now_ns = self._advice.lack(), self._driver.monotonic_ns()
                if lack is None:
                    since_ns = now_ns
                elif now_ns - since_ns >= limit * 1e9:
                    machine, driven = current
                    with driven.lock.enter():
                        machine.give_up(answer, NotControllerError(lack))

    def _explained(self, error: BaseException) -> BaseException:
        """Return the error with the voters that are missing, if no controller answered because of them."""
        lack = self._advice.lack() if isinstance(error, (BrokerNotAvailableError, NotControllerError)) else None
        return error if lack is None or lack in str(error) else NotControllerError(lack)

    def _interrupted(self, error: Exception | None) -> None:
        """Replace the machine, because a signal handler interrupted it or it failed. Called by the driving thread."""
        failure: PyreplogError = BrokerNotAvailableError("the question was interrupted")
        if error is not None:
            failure = InternalError(f"the admin client failed: {type(error).__name__}: {error}")
            failure.__cause__ = error
        machine, driven = self._current
        with driven.lock:  # a calling thread sent its request before this, or finds the new machine
            machine.abandon(failure)
            self._current = self._make()

    def __repr__(self) -> str:
        count = len(self._nodes.nodes)
        return f"<pyreplog.Admin of {count} node{'' if count == 1 else 's'}>"

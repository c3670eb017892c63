"""TopicChanges: the calls of an Admin that make, grow, alter and delete topics. Thread-safe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyreplog.client import (
    altered_configs,
    creatable,
    created_partitions,
    created_topics,
    deleted_topic,
    removed_voter,
)
from pyreplog.config import (
    FOREVER_S,
    INT32_MAX,
    LogConfig,
    check_flag,
    check_seconds,
    small_retention,
    whole,
)
from pyreplog.controller import PARTITIONS_MAX
from pyreplog.errors import (
    ConfigError,
    InvalidPartitionsError,
    InvalidTopicError,
    OutcomeUnknownError,
    PyreplogError,
    RequestTimedOutError,
    TopicExistsError,
    UnknownTopicError,
    cluster_error,
    worded,
)
from pyreplog.log import check_topic, is_internal
from pyreplog.runtime.descriptions import (
    ClusterDescription,
    GrownTopic,
    NewTopic,
    NodeDescription,
    Placement,
    TopicDescription,
    check_alike,
    check_placement,
    settings_of,
    state_of,
)
from pyreplog.runtime.driver import Driver
from pyreplog.runtime.error_advice import Advice
from pyreplog.runtime.folder_opening import check_name
from pyreplog.runtime.key_check import KeyCheck, Places
from pyreplog.runtime.logger import LOGGER
from pyreplog.runtime.node_group import NodeGroup
from pyreplog.runtime.topic_compactor import TopicCompactor
from pyreplog.values import TopicCompaction
from pyreplog.wire import (
    NO_ERROR,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    CreatableTopic,
    CreatableTopicResult,
    DescribeClusterResponse,
    DescribeConfigsResponse,
)

if TYPE_CHECKING:
    from pyreplog.client import Admin as Machine
    from pyreplog.client import Answer

__all__ = ["TopicChanges"]

_POLICY: Final = "cleanup.policy"
_DEFAULTS = LogConfig().to_mapping(whole=True)


class _CheckedTopic(NamedTuple):
    """The checked values of a topic to make."""

    name: str
    partition_count: int
    factor: int
    texts: dict[str, str]
    placement: Placement


class TopicChanges:
    """A part of :class:`pyreplog.Admin`, which has the rest."""

    _driver: Driver
    _advice: Advice
    _nodes: NodeGroup
    _compactor: TopicCompactor
    _key_check: KeyCheck
    _on_change: Callable[[str | None], None]
    """Called after a topic (None: any) has other partitions or settings."""
    _on_new: Callable[[str], None]
    """Called after a topic was made or deleted."""

    if TYPE_CHECKING:

        def _answer(self, ask: Callable[[Machine], Answer], patience: float | None = None) -> Any: ...
        def _describe(self, name: str, patience: float | None) -> TopicDescription: ...
        def _await_nodes(self, patience: float | None) -> float | None: ...
        def describe(self, name: str) -> TopicDescription: ...

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        config: Mapping[str, object] | LogConfig | None = None,
        *,
        placement: Placement = "striped",
        exist_ok: bool = False,
        timeout: float | None = None,
    ) -> TopicDescription:
        """Make a topic and return when it can be used.

        ``partitions``: default 1, at most 10,000. ``replication_factor``: default 3, or as many as there are nodes.
        ``config``: Kafka's keys, or a LogConfig (only settings that differ from the defaults count). A setting that is
        not given is the cluster's default (``alter_cluster_config``), or else pyreplog's; for ``min.insync.replicas``
        that is a majority of the replicas. ``placement``: the rule that puts the replicas on nodes, ``"striped"``,
        ``"shifted"`` or ``"modular"``; see the guide. ``exist_ok``: accept a topic that exists, if it has the given
        partitions, replicas and settings. ``timeout``: seconds to wait until every live node serves all its
        partitions; None: wait as long as that makes progress (very many partitions take a while).

        Raises TopicExistsError, InvalidTopicError, ConfigError, BrokerNotAvailableError if no node is up, and
        TimeoutError, which says how far the nodes are: the topic exists then, and they go on.
        """
        check_flag("exist_ok", exist_ok)
        wanted = self._wanted(NewTopic(name, partitions, replication_factor, config, placement))
        patience = self._await_nodes(_patience(timeout))
        count = wanted.partition_count
        try:
            self._answer(lambda machine: machine.create_topic(*wanted), patience)
        except TopicExistsError:
            if not exist_ok:
                raise _exists(name) from None
            there = self.describe(name)
            check_alike(there, partitions, replication_factor, wanted.texts)
            count = len(there.partitions)
        else:
            _advise(name, wanted.texts)
        self._nodes.await_topic(name, count, patience)
        return self._made_known(self.describe(name))

    def create_topics(
        self,
        topics: Iterable[NewTopic | str | tuple[Any, ...] | Mapping[str, Any]],
        *,
        exist_ok: bool = False,
        timeout: float | None = None,
    ) -> dict[str, TopicDescription | PyreplogError]:
        """Make several topics with one request, and return when they can be used.

        Each of ``topics`` is a name, a :class:`NewTopic`, a tuple of its values, or a dict of them by name. Each topic
        is decided by itself. Return by name its description, or the error because of which it was not made (as
        :meth:`create_topic` raises it). ``exist_ok`` and ``timeout`` mean the same as there.

        Raises ConfigError if a topic is named twice, BrokerNotAvailableError if no node is up, TimeoutError.
        """
        check_flag("exist_ok", exist_ok)
        patience = _patience(timeout)
        asked = {one.name: one for one in _new_topics(topics)}
        found: dict[str, TopicDescription | PyreplogError] = {}
        wanted: dict[str, _CheckedTopic] = {}
        for name, one in asked.items():
            try:
                wanted[name] = self._wanted(one)
            except PyreplogError as error:
                found[name] = error
        if wanted:
            patience = self._await_nodes(patience)
            requests = [creatable(*one) for one in wanted.values()]
            for name, refusal in self._carry_out(requests, patience).items():
                found[name] = self._made(asked[name], wanted[name], refusal, exist_ok=exist_ok, patience=patience)
        return {name: found[name] for name in asked}

    def _carry_out(self, requests: list[CreatableTopic], patience: float | None) -> dict[str, PyreplogError | None]:
        """Make the topics; return the error of each, or None. A topic that exists after an unknown outcome counts as
        made if it is as it was wanted."""
        try:
            results: list[CreatableTopicResult] = self._answer(
                lambda machine: machine.change(created_topics(requests, machine.timeout_ms)), patience
            )
        except OutcomeUnknownError:
            return {one.name: self._make_again(one) for one in requests}
        return {
            one.name: None if one.error_code == NO_ERROR else cluster_error(one.error_code, one.error_message or "")
            for one in results
        }

    def _make_again(self, wanted: CreatableTopic) -> PyreplogError | None:
        config = {one.name: one.value or "" for one in wanted.configs}
        try:
            self.create_topic(
                wanted.name,
                wanted.num_partitions,
                wanted.replication_factor,
                config,
                placement=check_placement(wanted.placement),
                exist_ok=True,
            )
        except PyreplogError as error:
            return error
        return None

    def _made(
        self,
        asked: NewTopic,
        wanted: _CheckedTopic,
        error: PyreplogError | None,
        *,
        exist_ok: bool,
        patience: float | None,
    ) -> TopicDescription | PyreplogError:
        """Return the description of a topic once the nodes serve it, or the error because of which it was not made."""
        if isinstance(error, TopicExistsError) and exist_ok:
            there = self.describe(asked.name)
            try:
                check_alike(there, asked.partitions, asked.replication_factor, wanted.texts)
            except TopicExistsError as different:
                return different
            return there
        if error is not None:
            return _exists(asked.name) if isinstance(error, TopicExistsError) else error
        _advise(asked.name, wanted.texts)
        self._nodes.await_topic(asked.name, wanted.partition_count, patience)
        return self._made_known(self.describe(asked.name))

    def _made_known(self, made: TopicDescription) -> TopicDescription:
        """Tell the producers of a new topic, have it compacted if its settings say so, and return it."""
        self._on_new(made.name)
        if made.config.get(_POLICY, _DEFAULTS[_POLICY]) != _DEFAULTS[_POLICY]:
            self._compactor.settings_changed()
        return made

    def _wanted(self, new: NewTopic) -> _CheckedTopic:
        name, partitions, replication_factor, config, placement = new
        check_name(name)
        check_topic(name)
        _check_public(name, "made", "choose another name")
        count = 1 if partitions is None else whole("partitions", partitions, 1, PARTITIONS_MAX)
        factor = min(3, len(self._nodes.brokers))
        if replication_factor is not None:
            factor = whole("replication_factor", replication_factor, 1, INT32_MAX)
        if factor > len(self._nodes.brokers):
            noun = "nodes" if len(self._nodes.brokers) == len(self._nodes.nodes) else "brokers"
            raise ConfigError(
                f"replication_factor is {factor}; there are {len(self._nodes.brokers)} {noun}: ask for at most so many"
                " replicas, or open the cluster with more nodes"
            )
        known = _settings({} if config is None else config)
        settings = config.to_mapping() if isinstance(config, LogConfig) else config or {}
        return _CheckedTopic(name, count, factor, {key: known[key] for key in settings}, check_placement(placement))

    def delete_topic(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a topic with all its records, and return when no live node has it any more. Its files go with it.

        A producer or consumer of it meets UnknownTopicError, or goes on with a topic that is made under its name later.
        ``timeout``: seconds to wait for the nodes. Raises UnknownTopicError, InvalidTopicError for an internal topic
        (``__...``), and TimeoutError: the topic is deleted then, and the nodes go on.
        """
        check_name(name)
        _check_public(name, "deleted", "only pyreplog itself changes it")
        patience = _patience(timeout)
        there = self._describe(name, patience)
        patience = self._await_nodes(patience)
        try:
            self._answer(
                lambda machine: machine.change(deleted_topic(name, there.topic_id, machine.timeout_ms)), patience
            )
        except UnknownTopicError:
            raise self._advice.unknown_topic(name) from None
        self._nodes.await_metadata(f"topic {name!r} is deleted", patience)
        self._on_new(name)

    def create_partitions(
        self, topic: str, total: int, *, placement: Placement = "striped", timeout: float | None = None
    ) -> GrownTopic:
        """Let a topic have ``total`` partitions, more than before, and return when the new ones can be used.

        Open producers and consumers of this cluster use them from then on; a consumer of the whole topic reads each
        from its first record. The partition of a key depends on the number of partitions, so most keys have later
        records in another partition than earlier ones: ``note`` of the result says so. If the topic has ``total``
        already, nothing changes. ``placement`` and ``timeout`` mean the same as in :meth:`create_topic`; the new
        partitions continue the pattern of the others.

        Raises InvalidPartitionsError for fewer partitions than there are, UnknownTopicError, InvalidTopicError for an
        internal topic, BrokerNotAvailableError if no node is up, TimeoutError.
        """
        check_name(topic)
        _check_public(topic, "changed", "only pyreplog itself changes it")
        count = whole("total", total, 1, INT32_MAX)
        rule = check_placement(placement)
        patience = _patience(timeout)
        before = self._describe(topic, patience)
        there = len(before.partitions)
        note = ""
        if count != there:
            patience = self._await_nodes(patience)
            try:
                note = self._answer(
                    lambda machine: machine.change(created_partitions(topic, count, machine.timeout_ms, rule)), patience
                )
            except UnknownTopicError:
                raise self._advice.unknown_topic(topic) from None
            except InvalidPartitionsError:
                if len(self.describe(topic).partitions) != count:  # else another client was faster
                    raise
            self._nodes.await_topic(topic, count, patience, first=there)
            self._on_change(topic)
        now = self.describe(topic)
        added = len(now.partitions) - there
        return GrownTopic(
            now.name, now.topic_id, now.partitions, now.config, added, note, metadata_offset=now.metadata_offset
        )

    def alter_config(
        self, topic: str, config: Mapping[str, object | None] | LogConfig, *, timeout: float | None = None
    ) -> TopicDescription:
        """Change settings of a topic, and return when every live node applies them. Settings that are not named stay.

        ``config``: Kafka's keys; None resets a setting to the cluster's default, or else to pyreplog's. Every setting
        can be changed but ``durability``, which says what the acknowledgements of the topic's records meant.
        ``timeout``: seconds to wait for the nodes.

        A topic that becomes compacted is read as a whole first: with a record without a key it is refused, unless
        ``compact.unkeyed`` is ``drop``.

        Raises ConfigError for an unknown or wrong setting, and for such a record; UnknownTopicError, InvalidTopicError
        for an internal topic, and TimeoutError: the settings are changed then, and the nodes go on.
        """
        check_name(topic)
        _check_public(topic, "changed", "only pyreplog itself changes it")
        texts = _checked_changes(config)
        patience = _patience(timeout)
        if texts:
            reached = self._key_check.check(topic, texts)
            try:
                self._answer(lambda machine: machine.change(altered_configs(RESOURCE_TOPIC, topic, texts)), patience)
            except UnknownTopicError:
                raise self._advice.unknown_topic(topic) from None
            self._nodes.await_metadata(f"the settings of topic {topic!r} are changed", patience)
            self._on_change(topic)
            self._settle_compaction(texts, reached)
        now = self.describe(topic)
        if texts:
            _advise(topic, now.config)
        return now

    def alter_cluster_config(
        self, config: Mapping[str, object | None] | LogConfig, *, timeout: float | None = None
    ) -> dict[str, str]:
        """Change the defaults that the cluster gives to the settings of its topics, and return all that it has been
        given.

        A topic's own setting wins. ``config``: Kafka's keys; None resets a default to pyreplog's, which is a majority
        of a topic's replicas for ``min.insync.replicas``. ``durability`` has no such default. ``timeout`` and the
        errors mean the same as in :meth:`alter_config`.
        """
        texts = _checked_changes(config)
        patience = _patience(timeout)
        if texts:
            reached = self._key_check.check(None, texts)
            self._answer(lambda machine: machine.change(altered_configs(RESOURCE_BROKER, "", texts)), patience)
            self._nodes.await_metadata("the cluster's defaults are changed", patience)
            self._on_change(None)
            self._settle_compaction(texts, reached)
        return self._cluster_config()

    def _settle_compaction(self, texts: Mapping[str, str | None], reached: Places) -> None:
        """Begin to compact, if these new settings say so. Warn of records without a key that came before they
        counted."""
        if texts.get(_POLICY, _DEFAULTS[_POLICY]) == _DEFAULTS[_POLICY]:
            return
        self._compactor.settings_changed()
        for partition, offset in self._key_check.find_later(reached).items():
            LOGGER.warning(
                "%s got a record without a key at offset %d while the topic became compacted: it stays, unless"
                " compact.unkeyed is 'drop'",
                partition,
                offset,
            )

    def compact(self, topic: str, *, timeout: float | None = None) -> TopicCompaction:
        """Keep only the newest record of each key in a compacted topic, of all that is committed now, and return the
        counts of each replica.

        It happens by itself when ``min.cleanable.dirty.ratio`` asks for it. Each replica's segment that is being
        written is closed first. Replicas are compacted one after another, while appends and reads go on. Records keep
        their offsets, so offsets are missing from then on. The replicas of a node that is down or paused, and damaged
        ones, are named in ``skipped``. ``timeout``: seconds to wait.

        Raises UnknownTopicError, ConfigError for a topic that is not compacted by its settings, and TimeoutError: the
        compaction goes on then.
        """
        check_name(topic)
        seconds = check_seconds("timeout", timeout)
        # Without a majority of the voters the nodes here compact by the settings that they know.
        config = self._nodes.controller.settings_of(topic)
        if config is None:
            raise self._advice.unknown_topic(topic)
        if not config.compacts:
            raise ConfigError(
                f"{topic!r} has cleanup.policy={config.cleanup_policy}:"
                f" alter_config({topic!r}, {{'cleanup.policy': 'compact'}}) makes it compacted"
            )
        found = self._compactor.compact(topic, seconds)
        if found is None:
            raise TimeoutError(f"topic {topic!r} is not compacted after {timeout:g} s; that goes on in the background")
        return found

    def describe_cluster(self) -> ClusterDescription:
        """The nodes with their states, the node whose controller decides, and the cluster's defaults."""
        answer: DescribeClusterResponse = self._answer(lambda machine: machine.describe_cluster())
        states = {
            # A node that only votes registers nowhere.
            one.node_id: NodeDescription(one.node_id, "online" if one.ready and not one._is_broker else "offline")
            for one in self._nodes.nodes
            if not one.removed
        }
        states.update(
            (one.broker_id, NodeDescription(one.broker_id, state_of(one), one.rack, one.cordoned))
            for one in answer.brokers
        )
        return ClusterDescription(
            answer.cluster_id,
            None if answer.controller_id < 0 else answer.controller_id,
            tuple(states[number] for number in sorted(states)),
            self._cluster_config(),
            metadata_offset=answer.metadata_offset,
        )

    def replace_node(self, node_id: int, *, timeout: float | None = 30.0) -> None:
        """Start a node whose folder or metadata is lost, and return when it serves and votes again.

        A folder that is missing or empty is made; damaged metadata is removed. The node copies its records and the
        metadata from the others, a majority of which must be up. Nothing happens to a node that is whole. Raises
        ConfigError, RequestTimedOutError: the node goes on then.
        """
        number = whole("node_id", node_id, 1)
        patience = check_seconds("timeout", timeout)
        node = self._nodes.of(number)
        controller = self._nodes.controller
        if not node.alive:
            self._driver.run_exclusively(lambda: node._start_anew(cleared=False))
        self._begin_anew(number, patience)
        if not self._driver.wait_until(lambda: node._settled() and controller.is_settled(number), patience):
            raise RequestTimedOutError(
                f"node {number} is not whole again after {patience:g} s; it goes on: its state is {node.state}, and"
                f" {controller.lack() or 'a majority of the voters is up'}"
            )

    def _begin_anew(self, node_id: int, patience: float | None = None) -> None:
        """If a voter runs and does not vote, because its metadata is damaged: take its vote away, remove the metadata,
        and start the node again. It votes again when it has copied the metadata. REQUIRES that the others are a
        majority."""
        controller = self._nodes.controller
        damaged = self._driver.run_exclusively(lambda: controller.damaged_voter(node_id))
        if damaged is not None:
            self._remove_vote(node_id, damaged, patience)
            self._driver.run_exclusively(lambda: self._nodes.of(node_id)._start_anew(cleared=True))

    def _remove_vote(self, node_id: int, directory_id: str, patience: float | None = None) -> None:
        """Take the vote from a node with this folder."""
        cluster_id = self._nodes.controller.cluster_id
        change = removed_voter(node_id, directory_id, cluster_id)
        self._answer(lambda machine: machine.change(change), patience)

    def _cluster_config(self) -> dict[str, str]:
        answer: DescribeConfigsResponse = self._answer(lambda machine: machine.describe_configs([""], RESOURCE_BROKER))
        return settings_of(answer.results[0])


def _patience(timeout: float | None) -> float | None:
    patience = check_seconds("timeout", timeout, "as long as it makes progress")
    return FOREVER_S if patience is None and timeout is not None else patience


def _exists(name: str) -> TopicExistsError:
    return worded(
        lambda say: TopicExistsError(
            f"{name!r}; {say('exist_ok=True', '--exist-ok')} accepts it, if it has the given partitions, replicas and"
            " settings"
        )
    )


def _check_public(name: str, done: str, advice: str) -> None:
    if is_internal(name):
        raise InvalidTopicError(
            f"{name!r} cannot be {done}: names that begin with '__' are those of internal topics; {advice}"
        )


def _advise(name: str, config: Mapping[str, str]) -> None:
    if advice := small_retention(LogConfig.from_mapping(config)):
        LOGGER.warning("topic %s: %s", name, advice)


def _new_topics(topics: Iterable[Any]) -> list[NewTopic]:
    if isinstance(topics, (str, Mapping, NewTopic)) or not isinstance(topics, Iterable):
        raise ConfigError(
            f"topics is {topics!r}; it must be a list of names or of NewTopic, such as [NewTopic('orders', 4)]"
        )
    found: dict[str, NewTopic] = {}
    for one in topics:
        try:
            if isinstance(one, Mapping):
                new = NewTopic(**one)
            else:
                new = NewTopic(one) if isinstance(one, str) else NewTopic(*one)
        except TypeError:
            raise ConfigError(
                f"{one!r} is not a topic to make: give a name, or NewTopic(name, partitions, replication_factor,"
                " config, placement)"
            ) from None
        check_name(new.name)
        if new.name in found:
            raise ConfigError(f"topic {new.name!r} is named twice")
        found[new.name] = new
    return list(found.values())


def _checked_changes(config: Mapping[str, object | None] | LogConfig) -> dict[str, str | None]:
    """Return the changes as text. Raise ConfigError for an unknown or wrong setting."""
    if isinstance(config, LogConfig):
        _settings(config)
        return dict(config.to_mapping())
    if not hasattr(config, "items"):
        raise ConfigError(
            f"config is {config!r}; it must be a dict of Kafka's keys, such as {{'retention.ms': 86400000}}"
        )
    given = {key: _DEFAULTS.get(key, "") if value is None else value for key, value in config.items()}
    known = _settings(given)
    return {key: None if value is None else known[key] for key, value in config.items()}


def _settings(config: Mapping[str, object] | LogConfig) -> dict[str, str]:
    """Return all settings of a topic as text. Raise ConfigError for one that is unknown or wrong."""
    return dict(LogConfig.from_mapping(config).to_mapping(whole=True))

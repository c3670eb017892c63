"""The cluster that a scenario script plays on: a simulated cluster in which the script decides which messages and
syncs are held.

After every command a moment passes (20 ms), in which everything arrives that is not held, and everything happens
that is due.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from pyreplog.config import NodeConfig
from pyreplog.controller import (
    Controller,
    MetadataImage,
    PartitionDecision,
    PartitionImage,
    PartitionKey,
    QuorumServer,
    new_id,
)
from pyreplog.log import METADATA_FOLDER, Log
from pyreplog.node import HostedPartition
from pyreplog.ports import Address
from pyreplog.quorum import Identity, QuorumConfig, Voter, VoterSet, format_quorum, is_formatted
from pyreplog.record import BatchBuilder, split
from pyreplog.replica import Fetch, Leader
from pyreplog.testing import Machine, Member, SimTransport, WorldOptions
from pyreplog.testing.sim_cluster import SimCluster
from pyreplog.wire import (
    ELECT_PREFERRED,
    ELECT_UNCLEAN,
    LATEST_TIMESTAMP,
    NO_LEADER,
    AlterPartitionResponse,
    AlterPartitionResult,
    AlterPartitionTopicResult,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ElectLeadersRequest,
    ElectLeadersTopic,
    ErrorCode,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    PartitionChangeRecord,
    PartitionProduceData,
    ProduceRequest,
    Request,
    RequestBody,
    Response,
    TopicProduceData,
)
from tests.replication.scenarios.network import CONTROLLER, HoldingNetwork, Rule

MS = 1_000_000
MOMENT_MS = 20
TOPIC = "t"
CLIENT = "client"


class Everything(Random):
    """The chance of a power loss that takes all that was not synced."""

    def randrange(self, *arguments: Any) -> int:
        """0: nothing was written back."""
        return 0


class Broker(Machine):
    """A machine that scripts call by a letter."""

    def __init__(self, cluster: ScenarioCluster, letter: str) -> None:
        super().__init__(cluster, ord(letter) - ord("A") + 1)
        self.letter = letter
        self.key = ("", 0)
        self.syncs_held = False
        self.losses_told = self.rules_told = 0

    def start(self) -> None:
        """Start the node, which has reported nothing yet."""
        super().start()
        self.losses_told = self.rules_told = 0

    @property
    def hosted(self) -> HostedPartition | None:
        """The partition, while the node hosts it."""
        return None if self.node is None else self.node.hosted.get(self.key)

    @property
    def log(self) -> Log | None:
        """The partition's log, while the node is up."""
        hosted = self.hosted
        if hosted is not None:
            return hosted.replica.load_log()
        return None if self.root is None else next(iter(self.root.logs.values()), None)


class ScriptClient:
    """The client of a script: it collects the answers to its requests."""

    next_wake_ns = None

    def __init__(self, transport: SimTransport) -> None:
        self.transport = transport
        self.answers: dict[int, Any] = {}

    def poll(self) -> None:
        """Take the answers that arrived."""
        for event in self.transport.poll():
            message = getattr(event, "message", None)
            if isinstance(message, Response):
                self.answers[message.correlation_id] = message.body


class Server(QuorumServer):
    """The server of the only voter. It learns the end of a broker from the script."""

    exact_ends = False


class ScenarioCluster(SimCluster):
    """See the module's text. :mod:`tests.replication.scenarios.language` turns a script's lines into calls of these
    methods."""

    network: HoldingNetwork

    def __init__(self, lag_time_max_ms: int = 10_000) -> None:
        config = NodeConfig(
            replica_lag_time_max_ms=lag_time_max_ms, session_timeout_ms=9_000, heartbeat_interval_ms=500
        )
        super().__init__(7, WorldOptions(nodes=0, topics=(), producers=0, consumers=0, config=config))
        self.key: PartitionKey = ("", 0)
        self.brokers: dict[str, Broker] = {}
        self.client = ScriptClient(self.network.endpoint(CLIENT))
        self.answers = self.client.answers
        self.number = 0
        self.waiting: dict[int, tuple[str, int]] = {}
        """Appends without an outcome: request -> (name, acks)."""
        self.join(self.client, CLIENT)
        self.cluster_id = new_id(self._chance())
        self.server: QuorumServer | None = None
        self.controller_disk = self.new_disk(manual=False)
        self._controller_transport: SimTransport | None = None
        self._members[CONTROLLER] = self

    def make_network(self, random: Random) -> HoldingNetwork:
        """Return a network whose messages a script can hold."""
        return HoldingNetwork(self.clock, random)

    def broken(self, rule: str, about: str) -> None:
        """Fail the test."""
        raise AssertionError(f"{rule}: {about}")

    def turn_ended(self, address: Address, member: Member) -> None:
        """Do nothing: a script looks itself."""

    def node_started(self, machine: Machine) -> None:
        """Do nothing."""

    def node_stopping(self, machine: Machine, how: str) -> None:
        """Do nothing."""

    def disk_called(self, machine: Machine) -> None:
        """Do nothing."""

    # -- time

    def pass_time(self, ms: float) -> None:
        """Let time pass, and everything happen that is due and not held."""
        end = self.clock.monotonic_ns() + int(ms * MS)
        while self.next_event_ns <= end:
            self.step()
        self.clock.advance_to(end)

    def _plan_syncs(self, machine: Machine) -> None:
        """End the syncs of a machine at once, unless the script holds them."""
        assert isinstance(machine, Broker)
        if not machine.syncs_held:
            for token in machine.disk.pending_syncs:
                self._plan_at(self.clock.monotonic_ns(), partial(self._synced, machine, machine.disk, token))

    def hold_syncs(self, letter: str, *, held: bool) -> None:
        """Hold the syncs of a broker's disk, or let them end."""
        self.brokers[letter].syncs_held = held
        self._plan_syncs(self.brokers[letter])

    # -- the cluster

    def begin(self, letters: str, config: dict[str, str]) -> None:
        """Start a controller and brokers; create the topic with one partition on all of them, led by the first."""
        self.start_controller()
        for letter in letters:
            broker = self.brokers[letter] = Broker(self, letter)
            self.machines[broker.node_id] = broker
            self._members[broker.address] = broker
            self.start(broker.node_id)
        self.pass_time(200)
        replicas = [self.brokers[letter].node_id for letter in letters]
        configs = [CreatableTopicConfig(key, value) for key, value in config.items()]
        topic = CreatableTopic(TOPIC, assignments=[CreatableReplicaAssignment(0, replicas)], configs=configs)
        answer = self.call(CONTROLLER, CreateTopicsRequest([topic]))
        assert answer.topics[0].error_code == 0, answer
        self.key = (answer.topics[0].topic_id, 0)
        for broker in self.brokers.values():
            broker.key = self.key
        self.pass_time(MOMENT_MS)

    def start_controller(self, *, knows_ends: bool = False) -> None:
        """Start the only voter from its files."""
        disk, config = self.controller_disk, QuorumConfig()
        identity = Identity(99, new_id(Random(99)), self.cluster_id)
        if not is_formatted(disk, METADATA_FOLDER):
            voters = VoterSet([Voter.at(identity.key, CONTROLLER)])
            format_quorum(disk, METADATA_FOLDER, identity, self.clock, voters, config)
        transport = self._controller_transport = self.network.endpoint()
        self.server = Server.open(
            disk, METADATA_FOLDER, identity, self.options.config, config, transport, self.clock, self._chance()
        )
        self._after(CONTROLLER)

    def open_server(self, machine: Machine, random: Random) -> QuorumServer | None:
        """Open none: brokers have no servers of their own."""
        return None

    def stop_controller(self, *, power_loss: bool) -> None:
        """Kill the only voter, or cut its power."""
        assert self.server is not None
        assert self._controller_transport is not None
        self._controller_transport.close(silent=power_loss)
        self.server.kill()
        self.controller_disk.kill()
        if power_loss:
            self.controller_disk = self.controller_disk.crash(self._chance())
        self.server = None

    def controller_address(self, node_id: int) -> Address:
        """Return the address of the only voter: the brokers have no servers of their own."""
        return CONTROLLER

    @property
    def next_wake_ns(self) -> int | None:
        """When the only voter must take its next turn."""
        return None if self.server is None else self.server.next_wake_ns

    def poll(self) -> None:
        """Give the only voter one turn."""
        if self.server is not None:
            self.server.poll()

    @property
    def image(self) -> MetadataImage:
        """The committed metadata, or the last of it while the only voter is down."""
        if self.server is not None:
            self._last_image = self.server.image
        return self._last_image

    def die(self, letter: str, *, power: bool, silent: bool) -> None:
        """Kill a broker's process, or cut the power of its machine. Unless ``silent`` its peers notice."""
        broker = self.brokers[letter]
        broker.kill(silent=silent)
        if power:
            broker.disk = broker.disk.crash(Everything())
            broker.disk.manual = True
        self.gone(broker.node_id, tell=False)

    def wipe_disk(self, letter: str) -> None:
        """Give a broker that is down an empty disk."""
        broker = self.brokers[letter]
        broker.disk = self.new_disk(broker.clock)

    @property
    def controller(self) -> Controller:
        """The decisions themselves, for scripts that make some by hand."""
        assert self.server is not None
        assert self.server._active is not None
        self.server._active._align()
        return self.server._active.controller

    @property
    def partition(self) -> PartitionImage:
        """As the controller has it."""
        found = self.image.partition(self.key)
        assert found is not None
        return found

    def publish(self) -> None:
        """Send what was decided by hand, or because the script told it of an end."""
        server, now_ns = self.server, self.clock.monotonic_ns()
        assert server is not None
        assert server._active is not None
        server._active._append_or_undo(now_ns)
        server._carry_out(())
        for peer, correlation_id, body in server._fetches.serve(server.image, now_ns):
            server._send_answer(peer, correlation_id, body)
        self._after(CONTROLLER)

    def move(self, letter: str) -> None:
        """The controller makes a member of the set the leader, in a new epoch."""
        partition = self.partition
        leader = self.brokers[letter].node_id
        isr = partition.isr if leader in partition.isr else (*partition.isr, leader)
        self.controller._change(self.key, partition, PartitionDecision(isr, partition.elr, leader))
        self.publish()

    def leave_set(self, letter: str) -> None:
        """The controller takes a member out of the set."""
        self.controller._elect_or_keep_leader(
            self.key, self.clock.monotonic_ns(), without=(self.brokers[letter].node_id,)
        )
        self.publish()

    def assign(self, letter: str, *, there: bool) -> None:
        """The controller puts a broker into the assignment, or takes it out (a new leader epoch, as for every
        replica that goes)."""
        one, member = self.partition, self.brokers[letter].node_id
        change = PartitionChangeRecord(0, self.key[0])
        if there:
            change.replicas = (*one.replicas, member)
        else:
            change.replicas = tuple(other for other in one.replicas if other != member)
            change.isr = tuple(other for other in one.isr if other != member)
            change.eligible_leader_replicas = tuple(other for other in one.elr if other != member)
            change.leader = one.leader
        self.controller._write(change)
        self.publish()

    def refuse(self, letter: str, code: ErrorCode) -> None:
        """The held proposal of a leader is answered with ``code``, by a controller that did nothing."""
        rule = Rule("alter", self.brokers[letter].address, "")
        held = next(one for one in self.network.held if rule.fits(one))
        self.network.held.remove(held)
        topics = [
            AlterPartitionTopicResult(
                topic.topic_id, [AlterPartitionResult(part.partition_index, code) for part in topic.partitions]
            )
            for topic in held.message.body.topics
        ]
        answer = Response(CONTROLLER, held.message.correlation_id, AlterPartitionResponse(topics))
        self.network.message(CONTROLLER, held.source, answer)

    def fence(self, letter: str) -> None:
        """Tell the controller that a broker died."""
        assert self.server is not None
        self.server.note_ended(self.image.brokers[self.brokers[letter].node_id].incarnation_id)
        self.publish()

    def shut_down(self, letter: str) -> None:
        """Shut a broker down after its leadership has moved."""
        broker = self.brokers[letter]
        node = broker.node
        assert node is not None
        node.begin_shutdown()
        self._after(broker.address)
        for _ in range(100):
            self.pass_time(MOMENT_MS)
            if node.may_stop:
                break
        broker.stop()
        self.gone(broker.node_id, tell=False)

    def take(self, count: int, letter: str) -> None:
        """A follower fetches so many of its leader's (equally large) records at a time from now on."""
        broker = self.brokers[letter]
        hosted = broker.hosted
        assert hosted is not None
        assert broker.node is not None
        role: Any = hosted.replica.role
        builder = BatchBuilder()
        builder.append(b"1", None, (), 1_000)
        role.max_bytes = count * builder.finish().nbytes
        if role.asked is not None:
            role.asked = replace(role.asked, partition_max_bytes=role.max_bytes)
            broker.node._following.want(hosted, Fetch(role.leader_id, role.asked))
            broker.node._following.flush()
            self._after(broker.address)

    def flush(self, letter: str) -> None:
        """Its log reaches the disk."""
        log = self.brokers[letter].log
        assert log is not None
        plan = log.sync_plan()
        if plan is not None:
            for file in plan.files:
                file.sync()
            log.synced(plan.upto, plan.generation)
        log.sync_mark()

    # -- clients

    def ask(self, target: str, body: RequestBody) -> int:
        """Send a request; its number."""
        self.number += 1
        self.client.transport.send(target, Request(CLIENT, self.number, body))
        return self.number

    def call(self, target: str, body: RequestBody) -> Any:
        """The answer; None where none comes within a second."""
        number = self.ask(target, body)
        for _ in range(50):
            self.pass_time(MOMENT_MS)
            if number in self.answers:
                return self.answers.pop(number)
        return None

    @property
    def leader(self) -> str:
        """The leader's letter, as the controller has it."""
        return self.letter(self.partition.leader)

    def letter(self, node_id: int) -> str:
        """A broker's letter."""
        return chr(ord("A") + node_id - 1) if node_id >= 0 else "nobody"

    def send(self, name: str, to: str, acks: int, timeout_ms: int, numbers: tuple[int, int, int] | None) -> None:
        """One batch: of one record, or of several joined by ``+``."""
        builder = BatchBuilder()
        for value in name.split("+"):
            builder.append(value.encode(), None, (), 1_000)
        if numbers is None:
            data = bytearray(builder.finish())
        else:
            data = bytearray(
                builder.finish(producer_id=numbers[0], producer_epoch=numbers[1], base_sequence=numbers[2])
            )
        body = ProduceRequest(acks, timeout_ms, [TopicProduceData(self.key[0], [PartitionProduceData(0, data)])])
        self.waiting[self.ask(self.brokers[to].address, body)] = (name, acks)

    def outcomes(self) -> list[str]:
        """What became known of appends since the last call."""
        found = []
        for number, (name, acks) in list(self.waiting.items()):
            if number not in self.answers:
                continue
            part = self.answers.pop(number).responses[0].partition_responses[0]
            del self.waiting[number]
            code = ErrorCode(part.error_code)
            if code == ErrorCode.NONE:
                found.append(f"{name}: {'committed' if acks == -1 else 'written'} at {part.base_offset}")
            elif code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
                found.append(f"{name}: unknown, {code.name}")
            else:
                found.append(f"{name}: not appended, {code.name}")
        return found

    def news(self) -> list[str]:
        """Losses and broken rules that nodes report."""
        found = []
        for broker in self.brokers.values():
            if broker.node is None:
                continue
            for _, loss in broker.node.losses[broker.losses_told :]:
                what = (
                    f"offsets {loss.start} to {loss.end - 1}, lost by the unclean election of epoch {loss.leader_epoch}"
                )
                found.append(f"{broker.letter} gives up {what}")
            broker.losses_told = len(broker.node.losses)
            for rule in broker.node.broken_rules[broker.rules_told :]:
                found.append(f"{broker.letter} reports a broken rule: {rule.rule}: {rule.about}")
            broker.rules_told = len(broker.node.broken_rules)
        return found

    def read(self, offset: int, to: str, *, anywhere: bool, epoch: int, last_epoch: int) -> str:
        """A consumer's fetch."""
        part = FetchPartition(0, epoch, offset, last_epoch)
        body = FetchRequest(0, 1, [FetchTopic(self.key[0], [part])], rack_id="any" if anywhere else "")
        answer = self.call(self.brokers[to].address, body)
        if answer is None:
            return "no answer"
        data = answer.responses[0].partitions[0]
        if data.error_code:
            return ErrorCode(data.error_code).name
        if data.diverging_epoch is not None:
            return f"diverging: epoch {data.diverging_epoch.epoch} ends at {data.diverging_epoch.end_offset}"
        records = [] if data.records is None else [record for one in split(data.records) for record in one.records()]
        values = [record.value.decode() for record in records if record.value is not None and record.offset >= offset]
        return f"{' '.join(runs(values)) or 'nothing'}, high watermark {data.high_watermark}"

    def latest(self, to: str) -> str:
        """ListOffsets: the end."""
        body = ListOffsetsRequest([ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, LATEST_TIMESTAMP)])])
        answer = self.call(self.brokers[to].address, body)
        part = answer.topics[0].partitions[0]
        return ErrorCode(part.error_code).name if part.error_code else str(part.offset)

    def end_of_epoch(self, epoch: int, to: str) -> str:
        """OffsetsForLeaderEpoch."""
        body = OffsetForLeaderEpochRequest([OffsetForLeaderTopic(TOPIC, [OffsetForLeaderPartition(0, epoch)])])
        part = self.call(self.brokers[to].address, body).topics[0].partitions[0]
        return (
            ErrorCode(part.error_code).name
            if part.error_code
            else f"epoch {part.leader_epoch} ends at {part.end_offset}"
        )

    def delete(self, offset: int, to: str) -> str:
        """DeleteRecords."""
        parts = [DeleteRecordsPartition(0, offset)]
        answer = self.call(self.brokers[to].address, DeleteRecordsRequest([DeleteRecordsTopic(TOPIC, parts)], 500))
        part = answer.topics[0].partitions[0]
        return ErrorCode(part.error_code).name if part.error_code else f"low watermark {part.low_watermark}"

    def elect(self, *, unclean: bool) -> str:
        """ElectLeaders."""
        kind = ELECT_UNCLEAN if unclean else ELECT_PREFERRED
        answer = self.call(CONTROLLER, ElectLeadersRequest(kind, [ElectLeadersTopic(TOPIC, [0])]))
        part = answer.replica_election_results[0].partition_result[0]
        if part.error_code:
            return ErrorCode(part.error_code).name
        return self.lettered(part.error_message or "done")

    def lettered(self, text: str) -> str:
        """``node 2`` becomes ``B``."""
        return re.sub(r"node (\d+)", lambda found: self.letter(int(found[1])), text)

    # -- looking

    def about_controller(self) -> str:
        """The controller's picture of the partition."""
        if self.server is None:
            return "controller: down"
        one = self.partition
        parts = [
            "nobody leads" if one.leader == NO_LEADER else f"{self.letter(one.leader)} leads",
            f"epoch {one.leader_epoch}",
        ]
        parts.append("in sync " + ("".join(self.letter(member) for member in one.isr) or "nobody"))
        if one.elr:
            parts.append("eligible " + "".join(self.letter(member) for member in one.elr))
        if one.recovering:
            parts.append("recovering")
        fenced = "".join(self.letter(b.broker_id) for b in self.controller.image.brokers.values() if b.fenced)
        if fenced:
            parts.append(f"fenced {fenced}")
        return "controller: " + ", ".join(parts)

    def about_broker(self, broker: Broker) -> str:
        """One copy: its role, its records with the high watermark as a bar, its epochs."""
        if broker.node is None:
            return f"{broker.letter}: down"
        log = broker.log
        if log is None:
            return f"{broker.letter}: up, without a copy"
        hosted = broker.hosted
        role = (
            "waits"
            if hosted is None
            else {"leader": "leads", "follower": "follows", "none": "waits"}.get(
                hosted.replica.role.name, hosted.replica.role.name
            )
        )
        epoch = -1 if hosted is None else hosted.replica.leader_epoch
        parts = [f"{broker.letter} {role} {epoch}:", self.records(log)]
        tail = [f"end {log.end_offset}"]
        if log.start_offset:
            tail.append(f"start {log.start_offset}")
        if log.durability == "sync":
            tail.append(f"flushed {log.flushed_offset}")
        tail.append(
            "epochs " + (" ".join(f"{entry.epoch}@{entry.start_offset}" for entry in log.epochs.entries) or "none")
        )
        if log.incomplete:
            tail.append("incomplete")
        return f"{' '.join(parts)}   ({', '.join(tail)})"

    def records(self, log: Log) -> str:
        """Every record with its leader epoch, and where the high watermark stands."""
        found: list[tuple[int, str, int]] = []
        offset = log.start_offset
        while offset < log.end_offset:
            data = b"".join(bytes(part) for part in log.read(offset, 1 << 20, log.end_offset).parts())
            for one in split(data):
                for record in one.records():
                    if record.offset >= log.start_offset:
                        found.append((record.offset, (record.value or b"-").decode(), one.leader_epoch))
                offset = one.next_offset
        words: list[str] = []
        for part in (
            [(name, epoch) for at, name, epoch in found if at < log.high_watermark],
            [(name, epoch) for at, name, epoch in found if at >= log.high_watermark],
        ):
            groups: list[tuple[int, list[str]]] = []
            for name, epoch in part:
                if not groups or groups[-1][0] != epoch:
                    groups.append((epoch, []))
                groups[-1][1].append(name)
            words.append(" ".join(f"e{epoch}[{' '.join(runs(names))}]" for epoch, names in groups))
        return f"{words[0]} | {words[1]}".strip()

    def look(self, letter: str) -> str:
        """What a leader knows."""
        hosted = self.brokers[letter].hosted
        role = None if hosted is None else hosted.replica.role
        if not isinstance(role, Leader):
            return f"{letter} does not lead"
        in_sync = role.in_sync_set
        knows = " ".join(f"{self.letter(one.broker_id)} {one.leo if one.leo >= 0 else '?'}" for one in in_sync.remotes)
        committed = "".join(self.letter(one) for one in in_sync.committed)
        maximal = "".join(self.letter(one) for one in in_sync.maximal)
        state = f"committed {committed}, maximal {maximal}, proposal {'pending' if in_sync.pending else 'none'}"
        log = role.context.log
        return f"{letter} knows {knows}; {state}; high watermark {log.high_watermark} of {log.end_offset}"

    def rule(self, kind: str, way: str) -> Rule:
        """From ``fetch C->B``."""
        source, arrow, target = way.partition("->")
        assert arrow, f"{way!r} is not A->B"
        return Rule(kind, self.place(source), self.place(target))

    def place(self, name: str) -> str:
        """A letter's address, or that of the controller or the client."""
        if name in self.brokers:
            return self.brokers[name].address
        return CONTROLLER if name == "controller" else name

    def cut(self, one: str, other: str, *, heal: bool) -> None:
        """Nothing passes between two, either way."""
        for way in ((self.place(one), self.place(other)), (self.place(other), self.place(one))):
            self.network.link(*way).cut = not heal


def runs(names: list[str]) -> list[str]:
    """``1 2 3 4`` as ``1..4``, where four or more follow one another."""
    found: list[str] = []
    index = 0
    while index < len(names):
        last = index
        while last + 1 < len(names) and names[last].isdigit() and names[last + 1] == str(int(names[last]) + 1):
            last += 1
        if last - index >= 3:
            found.append(f"{names[index]}..{names[last]}")
        else:
            found += names[index : last + 1]
        index = last + 1
    return found

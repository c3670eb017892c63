"""Schedules as text: what was done on the left of ``=>``, what came of it on the right.
``pytest tests/test_scripts.py --rewrite`` writes the right side anew.

A script in ``tests/scripts/replica`` begins with its topic's settings (``replicas 3``,
``set min.insync.replicas 2``). Then one verb a line; brokers are numbers. The right side shows what changed:
effects, answers, and the state of the logs when it moved (log end offsets, high watermarks, in-sync set).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pyreplog.config import LogConfig
from pyreplog.replica import AlterPartition, BrokenRule, Effect, Fetch, Offline, Replica, Reply, StopFetching, Sync
from pyreplog.wire import ErrorCode, PartitionData
from tests.oracle.memory_log import MemoryLog
from tests.replica.replica_harness import CLIENT, Bench

SCRIPTS = sorted((Path(__file__).parent / "scripts" / "replica").glob("*.txt"))
ARROW = " => "


class Player(Bench):
    """A bench that writes down what it sees."""

    seen: list[str]

    def _note(self, broker: int, effect: Effect) -> None:
        super()._note(broker, effect)
        match effect:
            case Reply(source, number, result) if source == CLIENT:
                code = (
                    ErrorCode(result.error_code).name
                    if result.error_code
                    else f"offset {getattr(result, 'base_offset', '-')}"
                )
                self.seen.append(f"append {number}: {code}")
            case Reply(source, _, result):
                assert isinstance(result, PartitionData)
                self.seen.append(f"{broker} to {source}: {told(result)}")
            case Fetch(leader, request):
                self.seen.append(
                    f"{broker} fetches {request.fetch_offset} of {leader} (last epoch {request.last_fetched_epoch})"
                )
            case StopFetching():
                self.seen.append(f"{broker} stops fetching")
            case Sync(_, upto, _):
                self.seen.append(f"{broker} syncs up to {upto}")
            case AlterPartition(_, proposal):
                self.seen.append(f"{broker} proposes {[s.broker_id for s in proposal.new_isr_with_epochs]}")
            case BrokenRule(rule, _):
                self.seen.append(f"{broker} reports {rule}")
            case Offline():
                self.seen.append(f"{broker} goes offline")

    def state(self) -> str:
        """Ends, high watermarks and the leader's sets."""
        sets = [
            f"isr {list(r.isr)}" + (f" maximal {list(r.maximal_isr)}" if r.maximal_isr != r.isr else "")
            for r in self.leaders()
        ]
        return f"leo {self.ends()} hw {self.high_watermarks()} {' | '.join(sets)}".rstrip()

    def leaders(self) -> list[Replica]:
        """Replicas that believe to lead."""
        return [r for r in self.replicas.values() if r.is_leader]

    def play(self, line: str) -> None:
        """Do what one line says."""
        verb, *words = line.split()
        numbers = [int(w) for w in words if w.lstrip("-").isdigit()]
        match verb:
            case "elect":
                self.elect(numbers[0], isr=numbers[1:] or None)
            case "isr":
                self.set_isr(*numbers, tell=[self.leader])
            case "append":
                self.append(numbers[0], numbers[1] if len(numbers) > 1 else 1, acks=1 if "acks=1" in words else -1)
            case "present" | "answer" | "exchange" | "sync" | "decide" | "restart":
                for number in numbers:
                    getattr(self, verb)(number)
            case "tell":
                self.tell(*numbers)
            case "time":
                self.pass_time(numbers[0])
            case "settle":
                self.settle()
            case "power":
                for number in numbers:
                    self.logs[number].lose_power()
                    self.restart(number)
            case _:
                raise ValueError(f"unknown verb in {line!r}")


def told(data: PartitionData) -> str:
    """A fetch answer in short."""
    if data.error_code:
        return ErrorCode(data.error_code).name
    if data.diverging_epoch is not None:
        return f"diverging, epoch {data.diverging_epoch.epoch} ends at {data.diverging_epoch.end_offset}"
    return f"{'records' if data.records is not None else 'nothing'}, hw {data.high_watermark}"


def perform(text: str) -> str:
    """The script with its right sides as they come out."""
    settings: dict[str, object] = {"durability": "os"}
    count, player, out, before = 3, None, [], ""
    for line in text.splitlines():
        command = line.split(ARROW)[0].rstrip()
        if not command.strip() or command.startswith("#"):
            out.append(command)
            continue
        if line.startswith("    "):
            continue  # the rest of a long right side
        words = command.split()
        if words[0] == "replicas":
            count = int(words[1])
        elif words[0] == "set":
            settings[words[1]] = words[2]
        else:
            if player is None:
                config = LogConfig.from_mapping(settings)
                player = Player({b: MemoryLog(config) for b in range(1, count + 1)}, strict=False)
                before = player.state()
            player.seen = []
            player.play(command)
            after = player.state()
            seen = player.seen + ([after] if after != before else [])
            before = after
            if seen:
                command += ARROW + ("\n" + " " * 4).join(seen)
        out.append(command)
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, request: pytest.FixtureRequest) -> None:
    """The script comes out as it stands in the file."""
    text = path.read_text()
    found = perform(text)
    if request.config.getoption("--rewrite"):
        path.write_text(found)
    else:
        assert found == text

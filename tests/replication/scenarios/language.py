"""The language of scenario scripts: one command a line, and what it says in indented lines below it.

    # a comment                          about the script; the first line names it
    cluster ABC min=2                    brokers A, B, C, a topic with one partition on all of them, led by A;
                                         Kafka's settings by their
                                         keys (min: min.insync.replicas, lag: replica.lag.time.max.ms);
                                         durability=os unless given
    send m1 m2 3..9 a+b                  each as a batch of its own to the leader, acks=all; ``to B``,
                                         ``acks=1``, ``timeout=500``,
                                         ``numbers=7:0:3`` (producer id, epoch, sequence)
    show                                 the controller's picture, and each copy: e1[m1] is a record of epoch 1,
                                         | the high watermark
    look A                               what a leader knows of the others
    read 0                               a consumer's fetch from an offset; ``from B``, ``anywhere``,
                                         ``epoch=1``, ``last=0``
    latest / end of epoch 1 / delete 4   ListOffsets, OffsetsForLeaderEpoch, DeleteRecords; ``from B``
    hold fetch C->B / release fetch C->B / lose fetch C->B
                                         messages by kind (fetch data metadata alter altered beat beaten produce
                                         any), from whom, to whom (left out: anybody): kept from now on; let go;
                                         thrown away. ``release one ...``: only the first
    hold syncs A / release syncs A       syncs of a disk
    cut A B / heal A B                   the way between two
    take 3 B                             B fetches so many records at a time
    move B / out C                       the controller: B leads, in a new epoch; C leaves the set
    elect preferred / elect unclean      a person asks for it
    kill A / kill A silently             its process dies; the controller hears of it, or does not; ``power A``:
                                         the machine, with all
                                         that was not synced
    start A / stop A / flush A           it comes back; ends in order; its log reaches its disk
    remove FILE A / wipe A               from its folder, while it is down; it gets an empty disk
    fail read_at A / mend A              such calls on its log's files fail; no more
    fence A                              the controller takes it for dead
    unassign C / assign C                the controller takes it out of the assignment, and puts it back
    refuse A CODE                        a held proposal of A is answered so, and nothing is done
    controller stops / controller starts
    wait 500                             milliseconds

Every command is followed by a moment in which everything arrives that is not held, and by what became known in it.
"""

from __future__ import annotations

from collections.abc import Callable

from pyreplog.wire import ErrorCode
from tests.replication.scenarios.cluster import MOMENT_MS, ScenarioCluster

INDENT = "    "
SETTINGS = {"min": "min.insync.replicas"}


class Play:
    """One script being played."""

    def __init__(self) -> None:
        self.cluster = ScenarioCluster()
        self.verbs: dict[str, Callable[[list[str]], list[str]]] = {
            name[1:]: getattr(self, name) for name in dir(self) if name.startswith("_") and not name.startswith("__")
        }

    def run(self, line: str) -> list[str]:
        """Do what ``line`` says; what there is to say about it."""
        verb, *words = line.split()
        said = self.verbs[verb](words)
        if verb not in ("show", "look", "read", "latest"):
            self.cluster.pass_time(MOMENT_MS)
        return said + self.cluster.outcomes() + self.cluster.news()

    def _cluster(self, words: list[str]) -> list[str]:
        config, lag_time_max_ms = {"durability": "os"}, 10_000
        for word in words[1:]:
            key, _, value = word.partition("=")
            if key == "lag":
                lag_time_max_ms = int(value)
            else:
                config[SETTINGS.get(key, key)] = value
        self.cluster = ScenarioCluster(lag_time_max_ms)
        self.cluster.begin(words[0], config)
        return []

    def _send(self, words: list[str]) -> list[str]:
        to, acks, timeout_ms, numbers = self.cluster.leader, -1, 30_000, None
        names: list[str] = []
        rest = iter(words)
        for word in rest:
            if word == "to":
                to = next(rest)
            elif word.startswith("acks="):
                acks = -1 if word[5:] == "all" else int(word[5:])
            elif word.startswith("timeout="):
                timeout_ms = int(word[8:])
            elif word.startswith("numbers="):
                one, two, three = word[8:].split(":")
                numbers = (int(one), int(two), int(three))
            elif ".." in word:
                first, last = word.split("..")
                names += [str(number) for number in range(int(first), int(last) + 1)]
            else:
                names.append(word)
        for name in names:
            self.cluster.send(name, to, acks, timeout_ms, numbers)
        return []

    def _show(self, words: list[str]) -> list[str]:
        return [
            self.cluster.about_controller(),
            *(self.cluster.about_broker(broker) for broker in self.cluster.brokers.values()),
        ]

    def _look(self, words: list[str]) -> list[str]:
        return [self.cluster.look(words[0])]

    def _from(self, words: list[str]) -> str:
        return words[words.index("from") + 1] if "from" in words else self.cluster.leader

    def _read(self, words: list[str]) -> list[str]:
        options = dict(word.split("=") for word in words if "=" in word)
        epoch, last = int(options.get("epoch", -1)), int(options.get("last", -1))
        return [
            self.cluster.read(
                int(words[0]), self._from(words), anywhere="anywhere" in words, epoch=epoch, last_epoch=last
            )
        ]

    def _latest(self, words: list[str]) -> list[str]:
        return [self.cluster.latest(self._from(words))]

    def _end(self, words: list[str]) -> list[str]:
        return [self.cluster.end_of_epoch(int(words[2]), self._from(words))]

    def _delete(self, words: list[str]) -> list[str]:
        return [self.cluster.delete(int(words[0]), self._from(words))]

    def _hold(self, words: list[str]) -> list[str]:
        if words[0] == "syncs":
            self.cluster.hold_syncs(words[1], held=True)
        else:
            self.cluster.network.hold(self.cluster.rule(words[0], words[1]))
        return []

    def _release(self, words: list[str]) -> list[str]:
        return self._let(words, lost=False)

    def _lose(self, words: list[str]) -> list[str]:
        return self._let(words, lost=True)

    def _let(self, words: list[str], *, lost: bool) -> list[str]:
        if words[0] == "syncs":
            self.cluster.hold_syncs(words[1], held=False)
            return []
        one = words[0] == "one"
        count = self.cluster.network.release(self.cluster.rule(*words[one : one + 2]), lost=lost, one=one)
        assert count, f"nothing was held: {' '.join(words)}"
        return []

    def _cut(self, words: list[str]) -> list[str]:
        self.cluster.cut(words[0], words[1], heal=False)
        return []

    def _heal(self, words: list[str]) -> list[str]:
        self.cluster.cut(words[0], words[1], heal=True)
        return []

    def _take(self, words: list[str]) -> list[str]:
        self.cluster.take(int(words[0]), words[1])
        return []

    def _move(self, words: list[str]) -> list[str]:
        self.cluster.move(words[0])
        return []

    def _out(self, words: list[str]) -> list[str]:
        self.cluster.leave_set(words[0])
        return []

    def _elect(self, words: list[str]) -> list[str]:
        return [self.cluster.elect(unclean=words[0] == "unclean")]

    def _kill(self, words: list[str]) -> list[str]:
        return self._die(words, power=False)

    def _power(self, words: list[str]) -> list[str]:
        return self._die(words, power=True)

    def _die(self, words: list[str], *, power: bool) -> list[str]:
        silent = words[-1] == "silently"
        letters = words[:-1] if silent else words
        for letter in letters:
            self.cluster.die(letter, power=power, silent=silent)
        for letter in letters:
            if not silent:
                self.cluster.fence(letter)
        return []

    def _start(self, words: list[str]) -> list[str]:
        for letter in words:
            self.cluster.start(self.cluster.brokers[letter].node_id)
        self.cluster.pass_time(5 * MOMENT_MS)
        return []

    def _stop(self, words: list[str]) -> list[str]:
        self.cluster.shut_down(words[0])
        return []

    def _flush(self, words: list[str]) -> list[str]:
        for letter in words:
            self.cluster.flush(letter)
        return []

    def _remove(self, words: list[str]) -> list[str]:
        broker = self.cluster.brokers[words[1]]
        broker.disk.remove(f"{broker.address}/t-0/{words[0]}")
        return []

    def _wipe(self, words: list[str]) -> list[str]:
        self.cluster.wipe_disk(words[0])
        return []

    def _fail(self, words: list[str]) -> list[str]:
        self.cluster.brokers[words[1]].disk.fail(words[0], "*.log", times=None)
        return []

    def _mend(self, words: list[str]) -> list[str]:
        self.cluster.brokers[words[0]].disk.clear_faults()
        return []

    def _fence(self, words: list[str]) -> list[str]:
        self.cluster.fence(words[0])
        return []

    def _assign(self, words: list[str]) -> list[str]:
        self.cluster.assign(words[0], there=True)
        return []

    def _unassign(self, words: list[str]) -> list[str]:
        self.cluster.assign(words[0], there=False)
        return []

    def _refuse(self, words: list[str]) -> list[str]:
        self.cluster.refuse(words[0], ErrorCode[words[1]])
        return []

    def _controller(self, words: list[str]) -> list[str]:
        if words[0] == "stops":
            self.cluster.stop_controller(power_loss=False)
        else:
            self.cluster.start_controller()
        return []

    def _wait(self, words: list[str]) -> list[str]:
        self.cluster.pass_time(int(words[0]))
        return []


def play(text: str) -> str:
    """The script with what its commands say now."""
    script = Play()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(INDENT):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += [INDENT + one for one in script.run(line)]
    return "\n".join(lines) + "\n"

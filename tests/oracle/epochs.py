"""The slow twin of the leader epoch cache: a list, searched from one end to the other. Rules as Kafka's class has
them."""

from __future__ import annotations


class SlowEpochs:
    """Entries (epoch, start), rising in both."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = []

    def assign(self, epoch: int, offset: int) -> None:
        """``epoch`` begins at ``offset``."""
        if self.entries and self.entries[-1][0] == epoch and self.entries[-1][1] <= offset:
            return
        while self.entries and not (self.entries[-1][0] < epoch and self.entries[-1][1] < offset):
            del self.entries[-1]
        self.entries.append((epoch, offset))

    def end_offset_for(self, epoch: int, end: int) -> tuple[int, int]:
        """The epoch that answers for ``epoch``, and its end."""
        if epoch == -1 or not self.entries:
            return (-1, -1)
        if epoch == self.entries[-1][0]:
            return (epoch, end)
        above = [entry for entry in self.entries if entry[0] > epoch]
        if not above:
            return (-1, -1)
        below = [entry for entry in self.entries if entry[0] <= epoch]
        if not below:
            return (epoch, self.entries[0][1])
        return (max(below)[0], min(above)[1])

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch of ``offset``."""
        found = -1
        for epoch, start in self.entries:
            if start <= offset:
                found = epoch
        return found

    def truncate_from_end(self, offset: int) -> None:
        """Entries that begin at or above ``offset`` go."""
        if offset >= 0:
            self.entries = [entry for entry in self.entries if entry[1] < offset]

    def truncate_from_start(self, offset: int) -> None:
        """What lies below ``offset`` goes; the epoch that covers it begins there."""
        gone = [entry for entry in self.entries if entry[1] <= offset]
        if gone:
            self.entries = [(gone[-1][0], offset), *self.entries[len(gone) :]]

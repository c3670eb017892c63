"""The plan of a rebalance: 100,000 partitions over 90 nodes, to which 10 are added.

    .venv/bin/python benchmarks/bench_rebalance.py

Aim: at most 5 s, with the moves at the proven minimum.
"""

from __future__ import annotations

import time

from pyreplog.controller.placement import STRIPED, Candidate, place
from pyreplog.controller.rebalance import PlannedTopic, plan_rebalance

PARTITIONS = 100_000
NODES_BEFORE, NODES_AFTER = 90, 100


def main() -> None:
    """Print the seconds of processor time and the moves for few large and many small topics."""
    nodes = [Candidate(number) for number in range(NODES_BEFORE)]
    print(f"{'topics':>8} {'partitions':>10} {'seconds':>8} {'moves':>7} {'minimum':>7}")
    for topic_count in (1, 10, 100, 1_000, 100_000):
        count = PARTITIONS // topic_count
        whole = place(STRIPED, PARTITIONS, 3, nodes)
        topics = [
            PlannedTopic(f"t{at}", whole[at * count : (at + 1) * count], [1 << 20] * count) for at in range(topic_count)
        ]
        began = time.process_time()
        plan = plan_rebalance(topics, dict.fromkeys(range(NODES_AFTER)))
        seconds = time.process_time() - began
        print(f"{topic_count:>8} {count:>10} {seconds:>8.2f} {len(plan.moves):>7} {plan.minimum:>7}")


if __name__ == "__main__":
    main()

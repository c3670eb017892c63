"""Shrinks a failing run: removes every part of its options that the failure does not need."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Final

from pyreplog.testing.checkers import InvariantBroken
from pyreplog.testing.network import NetworkOptions
from pyreplog.testing.options import WorldOptions

__all__ = ["shrink"]

TRIES_MAX: Final = 60


def shrink(
    options: WorldOptions, run: Callable[[WorldOptions], None], rule: str
) -> tuple[WorldOptions, InvariantBroken | None]:
    """Return the smallest options found with which ``run`` still breaks ``rule``, and the error.

    Each try removes one part of the options. If the rule still breaks, the part stays removed.
    """
    found: InvariantBroken | None = None
    tries = 0
    going = True
    while going:
        going = False
        for smaller in _smaller(options):
            tries += 1
            if tries > TRIES_MAX:
                return options, found
            try:
                run(smaller)
            except InvariantBroken as broken:
                if broken.rule == rule:
                    options, found, going = smaller, broken, True
                    break
    return options, found


def _smaller(options: WorldOptions) -> Iterator[WorldOptions]:
    """Yield the options with one part removed, for each part."""
    if len(options.topics) > 1:
        for topic in options.topics:
            yield dataclasses.replace(options, topics=(topic,))
    for index, topic in enumerate(options.topics):
        if topic.partitions > 1:
            fewer = dataclasses.replace(topic, partitions=1)
            yield dataclasses.replace(options, topics=(*options.topics[:index], fewer, *options.topics[index + 1 :]))
        if topic.compacts:
            kept = dataclasses.replace(topic, cleanup_policy="delete")
            yield dataclasses.replace(options, topics=(*options.topics[:index], kept, *options.topics[index + 1 :]))
    if options.producers > 1:
        yield dataclasses.replace(options, producers=1)
    if options.events_min:
        yield dataclasses.replace(options, events_min=0)
    if options.safety_ms > 500:
        yield dataclasses.replace(options, safety_ms=options.safety_ms // 2)
    for kind in dataclasses.fields(options.faults):
        if not kind.name.endswith("_ms") and getattr(options.faults, kind.name):
            yield dataclasses.replace(options, faults=dataclasses.replace(options.faults, **{kind.name: 0}))
    calm = NetworkOptions(delay_min_ns=options.network.delay_min_ns, delay_max_ns=options.network.delay_max_ns)
    if options.network != calm:
        yield dataclasses.replace(options, network=calm)
    if options.burst_max > 1:
        yield dataclasses.replace(options, burst_max=1)

"""The controller: metadata as a value, the rules that decide it, and the authority that runs them
in one process.

Sans-IO except for one small state file, which goes through the ``Disk`` port.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from pyreplog.controller.layout import STATE_FILE

if TYPE_CHECKING:
    from pyreplog.controller.controller import Controller
    from pyreplog.controller.describe import describe_cluster, describe_configs, describe_topics, metadata
    from pyreplog.controller.election import (
        MISSING,
        Election,
        PartitionDecision,
        ReplicaEnd,
        UncleanElection,
        change_record,
        elect_longest,
    )
    from pyreplog.controller.image import (
        LOST_DIRECTORY,
        BrokerImage,
        MetadataImage,
        PartitionImage,
        PartitionKey,
        TopicImage,
        effective_min_isr,
    )
    from pyreplog.controller.local_controller import (
        CONTROLLER_ADDRESS,
        ControllerReply,
        ControllerServer,
        LocalController,
    )
    from pyreplog.controller.placement import place
    from pyreplog.controller.state import ControllerState, decode, encode, load, read_state, store
    from pyreplog.controller.topics import PARTITIONS_MAX, new_id

__all__ = [
    "CONTROLLER_ADDRESS",
    "LOST_DIRECTORY",
    "MISSING",
    "PARTITIONS_MAX",
    "STATE_FILE",
    "LocalController",
    "ControllerServer",
    "ControllerReply",
    "BrokerImage",
    "Controller",
    "ControllerState",
    "MetadataImage",
    "PartitionImage",
    "PartitionKey",
    "ReplicaEnd",
    "Election",
    "PartitionDecision",
    "TopicImage",
    "UncleanElection",
    "change_record",
    "decode",
    "describe_cluster",
    "describe_configs",
    "describe_topics",
    "effective_min_isr",
    "elect_longest",
    "encode",
    "load",
    "metadata",
    "new_id",
    "place",
    "read_state",
    "store",
]

_LATER: Final = {
    "LocalController": ".local_controller",
    "ControllerServer": ".local_controller",
    "ControllerReply": ".local_controller",
    "LOST_DIRECTORY": ".image",
    "BrokerImage": ".image",
    "CONTROLLER_ADDRESS": ".local_controller",
    "Controller": ".controller",
    "ControllerState": ".state",
    "MISSING": ".election",
    "PARTITIONS_MAX": ".topics",
    "MetadataImage": ".image",
    "PartitionImage": ".image",
    "PartitionKey": ".image",
    "ReplicaEnd": ".election",
    "Election": ".election",
    "PartitionDecision": ".election",
    "TopicImage": ".image",
    "UncleanElection": ".election",
    "change_record": ".election",
    "decode": ".state",
    "describe_cluster": ".describe",
    "describe_configs": ".describe",
    "describe_topics": ".describe",
    "effective_min_isr": ".image",
    "elect_longest": ".election",
    "encode": ".state",
    "load": ".state",
    "metadata": ".describe",
    "new_id": ".topics",
    "place": ".placement",
    "read_state": ".state",
    "store": ".state",
}


def __getattr__(name: str) -> object:
    """Import a name on first use, because this package takes longer to import than a log to
    open."""
    room = _LATER.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}{room}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

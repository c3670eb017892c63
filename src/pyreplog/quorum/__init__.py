"""Who decides: metadata as a value, the controller's rules over it, and the authority that runs them in one process.

Sans-IO except for one small state file, which goes through the ``Disk`` port.
"""

from __future__ import annotations

from pyreplog.quorum.authority import CONTROLLER_ADDRESS, Authority, AuthorityEndpoint, AuthorityReply
from pyreplog.quorum.controller import Controller
from pyreplog.quorum.describe import describe_cluster, describe_configs, describe_topics, metadata
from pyreplog.quorum.election import MISSING, ReplicaEnd, Settlement, UncleanElection, change_record, settle, settle_uncleanly
from pyreplog.quorum.image import BrokerImage, MetadataImage, PartitionImage, PartitionKey, TopicImage, effective_min_isr
from pyreplog.quorum.placement import place
from pyreplog.quorum.state import STATE_FILE, ControllerState, decode, encode, load, store
from pyreplog.quorum.topics import new_id

__all__ = [
    "CONTROLLER_ADDRESS",
    "MISSING",
    "STATE_FILE",
    "Authority",
    "AuthorityEndpoint",
    "AuthorityReply",
    "BrokerImage",
    "Controller",
    "ControllerState",
    "MetadataImage",
    "PartitionImage",
    "PartitionKey",
    "ReplicaEnd",
    "Settlement",
    "TopicImage",
    "UncleanElection",
    "change_record",
    "decode",
    "describe_cluster",
    "describe_configs",
    "describe_topics",
    "effective_min_isr",
    "encode",
    "load",
    "metadata",
    "new_id",
    "place",
    "settle",
    "settle_uncleanly",
    "store",
]

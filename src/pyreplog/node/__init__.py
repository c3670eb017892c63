"""One member of a cluster: messages in, effects out."""

from __future__ import annotations

from pyreplog.node.effects import Effects
from pyreplog.node.hosting import HostedPartition
from pyreplog.node.metadata import MetadataListener
from pyreplog.node.node import Node
from pyreplog.node.traffic import NodeTraffic

__all__ = ["Effects", "HostedPartition", "MetadataListener", "Node", "NodeTraffic"]

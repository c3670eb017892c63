"""One member of a cluster: messages in, effects out."""

from __future__ import annotations

from pyreplog.node.hosting import Hosted
from pyreplog.node.metadata import MetadataFollower
from pyreplog.node.node import Node

__all__ = ["Hosted", "MetadataFollower", "Node"]

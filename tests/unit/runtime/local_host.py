"""The controller of a cluster that has one controller with a file of its own."""

from __future__ import annotations

import pyreplog
from pyreplog.runtime.local_controller_host import LocalControllerHost


def local_host(cluster: pyreplog.Cluster) -> LocalControllerHost:
    """Return the host of the cluster's controller."""
    host = cluster._controller
    assert isinstance(host, LocalControllerHost)
    return host

"""The active controller of a cluster, of either kind."""

from __future__ import annotations

import pyreplog
from pyreplog.runtime.driver import DrivenMachine
from pyreplog.runtime.local_controller_host import LocalControllerHost


def controller_driven(cluster: pyreplog.Cluster) -> DrivenMachine:
    """Return the machine of the active controller, of either kind."""
    if isinstance(cluster._controller, LocalControllerHost):
        driven = cluster._controller._driven
    else:
        active = cluster.controller
        assert active is not None
        driven = active._server_driven
    assert driven is not None
    return driven


def local_host(cluster: pyreplog.Cluster) -> LocalControllerHost:
    """Return the host of the cluster's controller."""
    host = cluster._controller
    assert isinstance(host, LocalControllerHost)
    return host

"""The active controller of a cluster."""

from __future__ import annotations

import pyreplog
from pyreplog.runtime.driver import DrivenMachine


def controller_driven(cluster: pyreplog.Cluster) -> DrivenMachine:
    """Return the machine of the active controller."""
    active = cluster.controller
    assert active is not None
    driven = active._server_driven
    assert driven is not None
    return driven

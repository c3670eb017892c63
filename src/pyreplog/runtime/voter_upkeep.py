"""What a cluster that has just opened does about its voters: damaged metadata, and more voters than the rule."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from pyreplog.errors import PyreplogError
from pyreplog.runtime.admin import Admin
from pyreplog.runtime.driver import Driver
from pyreplog.runtime.node_folders import NodeFolders
from pyreplog.runtime.node_group import NodeGroup

__all__ = ["forget_removed", "settle_voters"]

_SETTLE_S: Final = 10.0
"""How long an opening waits for a node whose metadata was damaged. It takes milliseconds."""

_log = logging.getLogger("pyreplog")


def forget_removed(nodes: NodeGroup, admin: Admin, driver: Driver, folders: NodeFolders) -> None:
    """Let the controller forget the nodes that left, if it did not hear of that before the process ended."""
    for number in sorted(folders.removed):
        if driver.run_exclusively(lambda number=number: number in nodes.controller.image.brokers):  # type: ignore[misc]
            try:
                admin._forget_node(number)
            except PyreplogError as error:
                _log.warning("the controller still knows node %d, which left: %s", number, error)


def settle_voters(nodes: NodeGroup, admin: Admin, driver: Driver, folders: NodeFolders) -> None:
    """Let voters with damaged metadata begin it anew, if their folders lie in the cluster's own, and take the vote from
    those that are beyond the rule.

    The opening does not wait for new votes, and does not fail if this fails.
    """
    outside = set(folders.outside())
    for node in nodes.nodes:
        number = node.node_id
        damage = driver.run_exclusively(partial(nodes.controller.damage_of, number))
        if damage is None or node.path in outside:
            continue
        _log.warning("node %d removes its damaged metadata, and copies it from the other voters", number)
        try:
            admin._begin_anew(number)
            driver.wait_until(node._settled, _SETTLE_S)
        except PyreplogError as error:
            _log.error("node %d keeps its damaged metadata: %s", number, error)
    for number, directory_id in driver.run_exclusively(nodes.controller.voters_beyond).items():
        try:
            admin._remove_vote(number, directory_id)
            _log.info("node %d votes no more: the cluster has enough voters without it", number)
        except PyreplogError as error:
            _log.warning("node %d keeps its vote, although it has none by the rule: %s", number, error)

"""Unregistering a broker that is gone for good."""

from __future__ import annotations

from pyreplog.controller.image import MetadataImage
from pyreplog.wire import ErrorCode, UnregisterBrokerRecord, UnregisterBrokerResponse

__all__ = ["unregister_broker"]


def unregister_broker(
    image: MetadataImage, broker_id: int
) -> tuple[UnregisterBrokerRecord | None, UnregisterBrokerResponse]:
    """Return the record that removes the registration of ``broker_id``, and the answer.

    Only a fenced broker may be unregistered: one that serves must stop first. Its replicas stay
    assigned to it, and it stays in the in-sync and eligible sets of partitions that have no leader,
    because its copy may be the last one. If a broker registers under that id again, its copies are
    judged as those of an unclean start.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        return None, UnregisterBrokerResponse(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"node {broker_id} is not registered; registered are {_ids(image)}"
        )
    if not broker.fenced:
        return None, UnregisterBrokerResponse(
            ErrorCode.INVALID_REQUEST, f"node {broker_id} is not fenced, it may serve clients: stop it first"
        )
    return UnregisterBrokerRecord(broker_id, broker.epoch), UnregisterBrokerResponse()


def _ids(image: MetadataImage) -> str:
    return ", ".join(str(one) for one in sorted(image.brokers)) or "none"

"""Feature levels: which forms of our own the records of a cluster may have.

A node registers with the range of levels that it knows. The finalized level is a record of the
metadata log. A new cluster begins at the latest level, a converted one at 0. The level rises by
itself once every registered node knows the next one, and never falls. Writers
use the new forms from that record on; readers know all forms up to their own highest level.

========= ==========================================================================================
level     adds
========= ==========================================================================================
0         nothing: Kafka's records alone, as version 0.1 of pyreplog made them
1         our tagged fields in PartitionRecord and PartitionChangeRecord: suspects
========= ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyreplog.controller.image import FEATURE, MetadataImage
from pyreplog.controller.refused import RefusedError
from pyreplog.wire import (
    BrokerRegistrationRequest,
    ErrorCode,
    FeatureLevelRecord,
    FeatureUpdate,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

__all__ = ["LEVEL_LATEST", "LEVEL_SUSPECTS", "knows_level", "update_features"]

LEVEL_LATEST: Final = 1
"""The highest level that this version of pyreplog knows."""
LEVEL_SUSPECTS: Final = 1
"""From this level on, records carry the suspects of a partition."""


def knows_level(image: MetadataImage, request: BrokerRegistrationRequest) -> bool:
    """Return whether a node that registers knows the finalized level."""
    level = image.level
    for feature in request.features:
        if feature.name == FEATURE:
            return feature.min_supported_version <= level <= feature.max_supported_version
    return level == 0


def update_features(
    image: MetadataImage, request: UpdateFeaturesRequest, own_level: int
) -> tuple[list[FeatureLevelRecord], UpdateFeaturesResponse]:
    """Return the records that set the levels, and the answer: all are set, or none.

    ``own_level``: the highest level that this controller knows.
    """
    records = []
    try:
        for update in request.feature_updates:
            _check(image, update, own_level)
            if update.max_version_level != image.level:
                records.append(FeatureLevelRecord(FEATURE, update.max_version_level))
    except RefusedError as refused:
        return [], UpdateFeaturesResponse(refused.code, str(refused))
    return [] if request.validate_only else records, UpdateFeaturesResponse()


def _check(image: MetadataImage, update: FeatureUpdate, own_level: int) -> None:
    level = update.max_version_level
    if update.feature != FEATURE:
        raise RefusedError(ErrorCode.INVALID_UPDATE_VERSION, f"unknown feature {update.feature!r}; known is {FEATURE}")
    if level < image.level:
        raise RefusedError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{FEATURE} is {image.level} and cannot be lowered to {level}: records of that level may be in the log",
        )
    if level > own_level:
        raise RefusedError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"the controller knows {FEATURE} up to {own_level}, not {level}: install a newer version on all nodes",
        )
    behind = [one.broker_id for one in image.brokers.values() if one.level_max < level]
    if behind:
        raise RefusedError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"node {_listed(behind)} does not know {FEATURE} {level}: install a newer version there, start it, and try"
            " again; or unregister a node that will not come back",
        )


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(str(one) for one in sorted(ids))

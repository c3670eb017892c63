"""A whole image in the answer to a node that is too far behind for single records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from pyreplog.controller.image import MetadataImage
from pyreplog.wire import MetadataRecord

__all__ = ["ImageRecords"]


class ImageRecords(Sequence[tuple[int, MetadataRecord]]):
    """The records that restate an image, all at its last offset.

    A reader in the same process takes a copy of the image, which costs next to nothing.
    """

    __slots__ = ("_image", "_made")

    def __init__(self, image: MetadataImage) -> None:
        self._image = image.copy()
        self._made: list[tuple[int, MetadataRecord]] | None = None

    def image(self) -> MetadataImage:
        """Return an image that the caller may change."""
        return self._image.copy()

    def as_list(self) -> list[tuple[int, MetadataRecord]]:
        """Return the records, which are made at the first call."""
        if self._made is None:
            self._made = [(self._image.offset, record) for record in self._image.records()]
        return self._made

    def __len__(self) -> int:
        return len(self.as_list())

    @overload
    def __getitem__(self, index: int) -> tuple[int, MetadataRecord]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[int, MetadataRecord]]: ...
    def __getitem__(self, index: int | slice) -> tuple[int, MetadataRecord] | list[tuple[int, MetadataRecord]]:
        return self.as_list()[index]

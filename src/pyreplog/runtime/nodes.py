"""Nodes: a cluster's nodes in the order of their numbers."""

from __future__ import annotations

from typing import SupportsIndex, TypeVar, overload

__all__ = ["Nodes"]

Node = TypeVar("Node")


class Nodes(tuple[Node, ...]):
    """A tuple whose IndexError says which nodes there are: nodes count from 1, and places in a tuple from 0."""

    __slots__ = ()

    @overload
    def __getitem__(self, place: SupportsIndex, /) -> Node: ...
    @overload
    def __getitem__(self, place: slice, /) -> tuple[Node, ...]: ...
    def __getitem__(self, place: SupportsIndex | slice, /) -> Node | tuple[Node, ...]:
        try:
            return super().__getitem__(place)
        except IndexError:
            last = len(self)
            raise IndexError(
                f"there is no nodes[{place}]: nodes[0] to nodes[{last - 1}] are the nodes 1 to {last}"
            ) from None

"""Arrow's C structs as another producer would fill them: a copy of what pyarrow exports, over the same buffers, to
be changed at will."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pyarrow as pa


class Schema(ctypes.Structure):
    """ArrowSchema."""


class Array(ctypes.Structure):
    """ArrowArray."""


Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.POINTER(Schema)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]
Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.POINTER(Array)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_of = ctypes.pythonapi.PyCapsule_New
_capsule_of.restype = ctypes.py_object
_capsule_of.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Foreign:
    """A record batch that hands over ``schema`` and ``array``, and counts how often these are released."""

    def __init__(self, batch: pa.RecordBatch | pa.StructArray) -> None:
        """The same as ``batch``, so far."""
        self.released: list[str] = []
        self._schema_release = ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))(self._note("schema"))
        self._array_release = ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))(self._note("array"))
        self._kept: list[Any] = [batch, *(capsules := batch.__arrow_c_array__())]
        schema, array = capsules
        self.schema = self._schema(ctypes.cast(_pointer_of(schema, b"arrow_schema"), ctypes.POINTER(Schema))[0])
        self.array = self._array(ctypes.cast(_pointer_of(array, b"arrow_array"), ctypes.POINTER(Array))[0])

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Capsules of the two, which release nothing by themselves."""
        return (
            _capsule_of(ctypes.addressof(self.schema), b"arrow_schema", None),
            _capsule_of(ctypes.addressof(self.array), b"arrow_array", None),
        )

    def column(self, *path: int) -> tuple[Any, Any]:
        """(schema, array) of a child of a child ..."""
        schema, array = self.schema, self.array
        for number in path:
            schema, array = schema.children[number][0], array.children[number][0]
        return schema, array

    def _note(self, what: str) -> Callable[[Any], None]:
        def release(struct: Any) -> None:
            self.released.append(what)
            struct[0].release = None

        return release

    def _schema(self, given: Any) -> Schema:
        copy = Schema.from_buffer_copy(given)
        copy.release = ctypes.cast(self._schema_release, ctypes.c_void_p)
        children = [self._schema(given.children[i][0]) for i in range(given.n_children)]
        copy.children = (
            (ctypes.POINTER(Schema) * len(children))(*(ctypes.pointer(child) for child in children))
            if children
            else None
        )
        self._kept += [copy.children, *children]
        return copy

    def _array(self, given: Any) -> Array:
        copy = Array.from_buffer_copy(given)
        copy.release = ctypes.cast(self._array_release, ctypes.c_void_p)
        children = [self._array(given.children[i][0]) for i in range(given.n_children)]
        copy.children = (
            (ctypes.POINTER(Array) * len(children))(*(ctypes.pointer(child) for child in children))
            if children
            else None
        )
        copy.buffers = (ctypes.c_void_p * given.n_buffers)(*(given.buffers[i] for i in range(given.n_buffers)))
        self._kept += [copy.children, copy.buffers, *children]
        return copy

    def buffer(self, *path: int, number: int, data: bytes, at: int = 0) -> None:
        """Put other bytes in place of a buffer, ``at`` bytes behind a multiple of 8."""
        memory = ctypes.create_string_buffer(len(data) + 16)
        address = (ctypes.addressof(memory) + 7) // 8 * 8 + at
        ctypes.memmove(address, data, len(data))
        self._kept.append(memory)
        self.column(*path)[1].buffers[number] = address

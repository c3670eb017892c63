"""Any value that a layout allows, and values as plain data."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from hypothesis import strategies as st

from pyreplog.wire.layouts import CLASSES, LAYOUTS
from pyreplog.wire.metadata_layouts import RECORD_CLASSES, RECORD_LAYOUTS, line_at
from tests.unit.wire.text_ids import ids

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def of_type(text: str, name: str, *, local: bool) -> st.SearchStrategy[Any]:
    """Values of a type's text; ``name`` is the field's."""
    if text.startswith("?"):
        return st.none() | of_type(text[1:], name, local=local)
    if text.startswith("["):
        return st.lists(of_type(text[1:-1], name, local=local), max_size=3)
    if text.startswith("{"):
        return of_type(text[1:-1].partition(":")[2], name, local=local)
    if name.endswith("error_code"):
        return st.sampled_from([-1, 0, 1, 3, 6, 74, 100])
    if text in BITS:
        bits = BITS[text]
        if name.endswith("_ms"):
            return st.integers(0, 2**31 - 1)  # kio makes dates of them
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if text == "uint16":
        return st.integers(0, 0xFFFF)
    if text == "bool":
        return st.booleans()
    if text == "uuid":
        return ids()
    if text == "string":
        return st.text(max_size=12)
    if text == "float64":
        return st.floats(allow_nan=False)
    if text == "bytes":
        return st.binary(max_size=40)
    if text == "records":
        return st.binary(max_size=40) | st.binary(min_size=5000, max_size=5000)
    return values(text, local=local)


def values(name: str, *, local: bool = True, version: int = 99) -> st.SearchStrategy[Any]:
    """Values of the class with that layout. Without ``local``, tags of our own stay at their defaults.

    ``version``: of a metadata record; fields that it lacks stay at their defaults.
    """
    kind = CLASSES.get(name) or RECORD_CLASSES.get(name)
    given: dict[str, st.SearchStrategy[Any]] = {}
    for word in line_at(LAYOUTS.get(name) or RECORD_LAYOUTS[name], version).split():
        rest, _, tag = word.partition("@")
        field, _, text = rest.partition(":")
        if tag and int(tag) >= 10_000 and not local:
            continue
        strategy = of_type(text, field, local=local)
        if tag and kind is not None:
            default = next(known.default for known in fields(kind) if known.name == field)
            strategy = strategy | st.just(default)
        given[field] = strategy
    return st.fixed_dictionaries(given) if kind is None else st.builds(kind, **given)


def plain(value: Any) -> Any:
    """``value`` as dictionaries, lists and scalars, so that what was a tuple and what was a list compare equal."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    return value

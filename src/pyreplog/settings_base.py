"""Frozen settings with defaults: the base class of the settings, and the advice for a wrong name.

Making a dataclass takes longer than opening a log, so these classes are made by a metaclass of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast, dataclass_transform

if TYPE_CHECKING:
    from dataclasses import Field
    from inspect import Signature

_INT32_MAX: Final = 2**31 - 1
_LISTED_MAX: Final = 40
"""The most names that a message lists."""


def suggestion(word: str, known: tuple[str, ...]) -> str:
    """Return ``"; did you mean 'x'?"`` if a near name is known, otherwise the list of known names (the beginning of
    a long one)."""
    near = meant(word, known)
    if near:
        return near
    more = f" and {len(known) - _LISTED_MAX:,} more" if len(known) > _LISTED_MAX else ""
    return f"; known are {', '.join(known[:_LISTED_MAX])}{more}"


def meant(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` if a near name is known, otherwise "", for the end of an error."""
    near = nearest(word, known)
    return "" if near is None else f"; did you mean {near!r}?"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the name in ``known`` that the user probably meant by ``word``; None if no name is near.

    A name is near if ``word`` is its beginning, or differs from it by a few typing errors: a letter too many, too
    few or wrong, or two letters exchanged, at most one for every three letters. Leading dashes and upper case make
    no difference. A wrong answer is worse than none.
    """
    names = tuple(known)
    asked = word.lstrip("-").lower()
    begun = [name for name in names if len(asked) > 1 and name.lstrip("-").lower().startswith(asked)]
    if len(begun) == 1:
        return begun[0]
    best, fewest = None, _INT32_MAX
    for name in names:
        other = name.lstrip("-").lower()
        longest = max(len(asked), len(other))
        slips = _slips(asked, other, max(1, longest // 3)) if longest else _INT32_MAX
        if slips < min(longest, fewest):
            best, fewest = name, slips
    return best


def _slips(one: str, other: str, limit: int) -> int:
    """Return the number of typing errors between two words; ``_INT32_MAX`` if it is above ``limit``."""
    if abs(len(one) - len(other)) > limit:
        return _INT32_MAX
    before: list[int] = []
    row = list(range(len(other) + 1))
    for index, letter in enumerate(one):
        above, row = row, [index + 1]
        for at, its in enumerate(other):
            slips = min(above[at] + (letter != its), above[at + 1] + 1, row[at] + 1)
            if index and at and letter == other[at - 1] and its == one[index - 1]:
                slips = min(slips, before[at - 1] + 1)
            row.append(slips)
        if min(row) > limit:
            return _INT32_MAX
        before = above
    return row[-1] if row[-1] <= limit else _INT32_MAX


class _Fields:
    """The fields for the functions of ``dataclasses``, made at their first use, because loading that module takes
    longer than opening a log."""

    def __init__(self) -> None:
        self._made: dict[type, dict[str, Field[Any]]] = {}

    def __get__(self, instance: object, owner: type[Settings]) -> dict[str, Field[Any]]:
        if owner not in self._made:
            from dataclasses import make_dataclass  # noqa: PLC0415  (see above)

            names = [(name, owner.__annotations__[name], value) for name, value in owner._defaults.items()]
            made: Any = make_dataclass(owner.__name__, names)  # it compiles source of its own: once
            self._made[owner] = made.__dataclass_fields__
        return self._made[owner]


class _Signature:
    """The signature for ``help()`` and completion, made at its first use."""

    def __get__(self, instance: object, owner: type[Settings]) -> Signature:
        from inspect import Parameter, Signature  # noqa: PLC0415  (only for people)
        from typing import get_type_hints  # noqa: PLC0415

        kinds = get_type_hints(owner)
        kind = Parameter.POSITIONAL_OR_KEYWORD
        return Signature(
            [Parameter(name, kind, default=value, annotation=kinds[name]) for name, value in owner._defaults.items()]
        )


class _Texts(dict[str, str]):
    """The names of a class's slots, and the texts below them in its source. The source is read when ``help()`` asks
    for the first text."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(dict.fromkeys(names, ""))
        self.owner: type[Settings] | None = None

    def __getitem__(self, name: str) -> str:
        if self.owner is not None:
            owner, self.owner = self.owner, None
            self.update(_texts_of(owner))
        return super().__getitem__(name)


def _texts_of(owner: type[Settings]) -> dict[str, str]:
    """Return the text below each field; an empty dict if the source is not available."""
    import ast  # noqa: PLC0415  (only for people)
    import inspect  # noqa: PLC0415

    try:
        (node,) = ast.parse(inspect.getsource(owner)).body
    except (OSError, SyntaxError):
        return {}
    assert isinstance(node, ast.ClassDef), "the source of a class is its definition"
    found: dict[str, str] = {}
    for field, text in pairwise(node.body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                found[name] = inspect.cleandoc(words)
    return found


class _SettingsType(type):
    """Turns the annotated names of a class into slots, and their values into defaults."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _SettingsType:
        defaults = {one: namespace.pop(one) for one in namespace.get("__annotations__", ()) if one in namespace}
        texts = _Texts(defaults)
        made = super().__new__(cls, name, bases, {**namespace, "__slots__": texts, "_defaults": defaults})
        texts.owner = cast("type[Settings]", made)
        return made


@dataclass_transform(frozen_default=True)
class Settings(metaclass=_SettingsType):
    """Frozen values with defaults; for users it looks like a dataclass."""

    _defaults: ClassVar[dict[str, object]]
    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    else:
        __dataclass_fields__ = _Fields()
        __signature__ = _Signature()

    def __init__(self, *values: object, **named: object) -> None:
        given = dict(zip(self._defaults, values, strict=False))
        if len(values) > len(self._defaults) or given.keys() & named.keys() or named.keys() - self._defaults.keys():
            unknown = sorted(named.keys() - self._defaults.keys())
            wrong = unknown or sorted(given.keys() & named.keys()) or values[len(self._defaults) :]
            more = suggestion(unknown[0], tuple(self._defaults)) if len(unknown) == 1 else ", or not twice"
            raise TypeError(f"{type(self).__name__} takes no {', '.join(map(repr, wrong))}{more}")
        for name, value in (self._defaults | given | named).items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check the values. Subclasses override it."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; dataclasses.replace() makes another one")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def _values(self) -> tuple[object, ...]:
        return tuple([getattr(self, name) for name in self._defaults])

    def __eq__(self, other: object) -> bool:
        return (
            self._values() == other._values()
            if isinstance(other, Settings) and type(other) is type(self)
            else NotImplemented
        )

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        changed = [name for name, default in self._defaults.items() if getattr(self, name) != default]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in changed)})"

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), self._values()

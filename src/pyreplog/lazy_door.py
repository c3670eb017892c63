"""lazy_door: a package whose names are imported on their first use.

Clusters, clients and the controller take longer to import than a log takes to open, so the packages
that export them import only what every program needs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

__all__ = ["lazy_door"]


def lazy_door(
    package: str, modules: Mapping[str, Sequence[str]], submodules: Sequence[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for the ``__init__`` of ``package``.

    ``modules``: the names that each module exports; a module's name is relative, such as
    ``".cluster"``. ``submodules``: modules that are themselves imported on first use.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> object:
        if name in submodules:
            return import_module(f"{package}.{name}")
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}{module}"), name)
        setattr(sys.modules[package], name, value)  # Python calls this function no more for this name
        return value

    def names() -> list[str]:
        return sorted((*sys.modules[package].__all__, *submodules))

    return get, names

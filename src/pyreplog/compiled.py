"""What modules say to mypyc, which compiles some of them (``COMPILED`` in setup.py). To the interpreter it says nothing.

mypyc knows its own decorator by where it comes from; at run time nothing of it is wanted. Two things are said with it:
``allow_interpreted_subclasses``: tests and users derive from this class, or hold a copy of its module that is not compiled beside
the compiled one (``pyreplog.testing.copies``); ``acyclic``: what an instance holds never leads back to it, so the garbage collector
need not visit it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_):
        """The class as it is."""
        return lambda cls: cls

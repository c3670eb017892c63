"""What modules say to mypyc, which compiles some of them (``COMPILED`` in setup.py). To the interpreter it says nothing.

mypyc knows its own decorator by where it comes from; at run time nothing of it is wanted.
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

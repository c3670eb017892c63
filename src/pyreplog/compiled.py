"""What modules say to mypyc, which compiles some of them (``COMPILED`` in setup.py). To the interpreter it says nothing.

mypyc knows its own decorator by where it comes from; at run time nothing of it is wanted. Two things are said with it:
``allow_interpreted_subclasses``: tests and users derive from this class, or hold a copy of its module that is not compiled beside
the compiled one (``pyreplog.testing.copies``); ``acyclic``: what an instance holds never leads back to it, so the garbage collector
need not visit it.

The modules that are compiled are one library, ``pyreplog__mypyc``, and each has a file that fetches it from there. Where such a file is
missing the interpreter would take the source in its place, and what is compiled would take its objects for compiled ones and end the
process. So a mixture is refused when the package is imported.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Final

__all__ = ["advice_on", "mypyc_attr"]

_GROUP: Final = "pyreplog__mypyc"
_INIT: Final = "init_"
_ONE: Final = (
    "pyreplog is for one interpreter of a process (mod_wsgi: `WSGIApplicationGroup %{GLOBAL}` has an application run in the main one)"
)
_REFUSALS: Final = ("one interpreter per process", "loading in subinterpreters")  # Cython's, and since 3.12 Python's
_ADVICE: Final = "build all of it anew: `pip install --force-reinstall pyreplog`; in a checkout `make .venv/.ready-core`, or `make pure`"

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_):
        """The class as it is."""
        return lambda cls: cls


def advice_on(error: ImportError, otherwise: str) -> str:
    """What to do about ``error``, with which something compiled could not be loaded: ``otherwise``, if it is not that another interpreter
    of the process is at it."""
    return _ONE if any(words in str(error) for words in _REFUSALS) else otherwise


def _check() -> None:
    """Raises ImportError where some of the modules are compiled and others are not."""
    here = os.path.dirname(__file__)
    beside = os.path.dirname(here)
    try:
        group = import_module(_GROUP)
    except ImportError as error:
        if any(name.startswith("arrivals.") and name != "arrivals.py" for name in os.listdir(here)):
            why = advice_on(error, f"what is compiled needs it: {_ADVICE}")
            raise ImportError(f"{_GROUP} cannot be loaded ({error}): {why}", name=_GROUP) from None
        return  # nothing is compiled
    suffix = os.path.basename(group.__file__ or "").removeprefix(_GROUP)
    names = [name.removeprefix(_INIT).replace("___", ".") for name in dir(group) if name.startswith(_INIT)]
    missing = [name for name in names if not os.path.exists(f"{beside}/{name.replace('.', '/')}{suffix}")]
    if 0 < len(missing) < len(names):  # without any of them the interpreter runs the sources here
        raise ImportError(f"{missing[0]} is not compiled, and what is compiled beside it needs that: {_ADVICE}", name=missing[0])


_check()

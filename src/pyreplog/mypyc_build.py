"""Hints for mypyc, which compiles some modules (``COMPILED`` in setup.py), without run-time effect.

mypyc recognises its own decorator by its import; at run time it is not needed. It gives two hints.
``allow_interpreted_subclasses``: tests and users derive from this class, or hold an interpreted
copy of its module beside the compiled one (``pyreplog.testing.copies``). ``acyclic``: no reference
of an instance leads back to it, so the garbage collector need not visit it.

The compiled modules are one library, ``pyreplog__mypyc``, and each has a file that loads it from
there. If such a file is missing, the interpreter would load the source instead. Compiled code would
then mistake its objects for compiled ones and crash the process. So a mixture is refused when the
package is imported.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Final

__all__ = ["advice_on", "mypyc_attr"]

_GROUP: Final = "pyreplog__mypyc"
_INIT: Final = "init_"
_ONE: Final = (
    "pyreplog can run in only one interpreter of a process (mod_wsgi: `WSGIApplicationGroup %{GLOBAL}` runs an"
    " application in the main one)"
)
# Cython's, and since 3.12 Python's
_REFUSALS: Final = ("one interpreter per process", "loading in subinterpreters")
_ADVICE: Final = (
    "rebuild the whole package: `pip install --force-reinstall pyreplog`; in a checkout `make .venv/.ready-core`, or"
    " `make pure`"
)

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_):
        """Return a decorator that returns the class unchanged."""
        return lambda cls: cls


def advice_on(error: ImportError, otherwise: str) -> str:
    """Return the advice for ``error``, which kept a compiled module from being loaded.

    It is ``otherwise``, unless the cause is another interpreter of this process.
    """
    return _ONE if any(words in str(error) for words in _REFUSALS) else otherwise


def _check() -> None:
    """Raise ImportError if some of the modules are compiled and others are not."""
    here = os.path.dirname(__file__)
    beside = os.path.dirname(here)
    try:
        group = import_module(_GROUP)
    except ImportError as error:
        if any(name.startswith("transport_events.") and name != "transport_events.py" for name in os.listdir(here)):
            why = advice_on(error, f"the compiled modules need it: {_ADVICE}")
            raise ImportError(f"{_GROUP} cannot be loaded ({error}): {why}", name=_GROUP) from None
        return  # nothing is compiled
    suffix = os.path.basename(group.__file__ or "").removeprefix(_GROUP)
    names = [name.removeprefix(_INIT).replace("___", ".") for name in dir(group) if name.startswith(_INIT)]
    missing = [name for name in names if not os.path.exists(f"{beside}/{name.replace('.', '/')}{suffix}")]
    if 0 < len(missing) < len(names):  # without any of them the interpreter runs the sources here
        raise ImportError(
            f"{missing[0]} is not compiled, but other modules of pyreplog are: {_ADVICE}", name=missing[0]
        )


_check()

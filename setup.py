"""The compiled parts of pyreplog. Everything else about the package is in pyproject.toml.

Every ``src/_core/*.pyx`` becomes ``pyreplog._core.<name>``; which kernels it links is said at its top
(``# distutils: sources``). The modules of ``COMPILED`` are ordinary typed Python, which runs as it is; mypyc
compiles them besides, because every batch goes through them. Switches from the environment: ``BARE=1`` (nothing is
compiled: it will be, in place), ``PURE=1`` (leave Python to the interpreter), ``SANITIZE=1`` (AddressSanitizer and
UBSan), ``TRACE=1`` (line coverage of Cython), ``DEBUG=1``; each of the last three leaves Python to the interpreter
too; ``QUICK=1`` (all, not optimized: in half of the time, for who only looks whether it is there). ``BUILD_DIR``
moves what is generated (default ``build/cython``).
"""

from __future__ import annotations

import copy
import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

if sys.platform == "win32":
    sys.exit(
        "pyreplog runs on Linux and macOS. On Windows, use it inside WSL 2"
        " (https://learn.microsoft.com/windows/wsl/install)."
    )

CORE = Path("src/_core")
SWITCHES = ("SANITIZE", "TRACE", "DEBUG", "PURE", "BARE", "QUICK")
SANITIZE, TRACE, DEBUG, PURE, BARE, QUICK = (os.environ.get(name, "") not in ("", "0") for name in SWITCHES)
OPTIMIZE = "0" if QUICK else "2"

COMPILED = {
    ".": "transport_events",
    "wire": "frame schemas",
    "system": "local",
    "replica": (
        "context delayed_consumer_fetches delayed_follower_fetches delayed_requests effects events follower in_sync_set"
        " leader list_offsets progress replica role"
    ),
    "node": (
        "admin alter_partition_manager checkpoints deletion effects events fetch forwarding hosting lifecycle metadata"
        " node produce replica_fetcher sessions"
    ),
    "client": "accumulator batch_forwarder calls producer producer_id router topic_queues",
    "runtime": "driver",
}
"""By layer. None of them on the way of a log that is opened alone: mypyc ends the process where an integer finds no
memory."""

compile_args = ["-std=c11", "-fvisibility=hidden"]
link_args: list[str] = []
if SANITIZE:
    compile_args += [
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
        "-fno-omit-frame-pointer",
        "-UNDEBUG",
        "-O1",
        "-g",
    ]
    link_args += ["-fsanitize=address,undefined"]
elif DEBUG or TRACE:
    compile_args += ["-UNDEBUG", "-O0", "-g"]
else:
    compile_args += [f"-O{OPTIMIZE}", "-g0", "-U_FORTIFY_SOURCE"]
    if not QUICK:  # which needs the optimizer
        compile_args += ["-D_FORTIFY_SOURCE=2" if sys.platform == "darwin" else "-D_FORTIFY_SOURCE=3"]
    compile_args += ["-fstack-protector-strong"]
    if sys.platform == "linux":
        compile_args += ["-fstack-clash-protection"]
        compile_args += ["-fcf-protection"] if platform.machine() == "x86_64" else []
        link_args += ["-Wl,-z,relro,-z,now", "-Wl,--gc-sections"]
        compile_args += ["-ffunction-sections"]

extensions = [
    Extension(
        f"pyreplog._core.{source.stem}",
        [str(source)],
        include_dirs=[str(CORE), str(CORE / "kernels")],
        # Puts every source into the sdist, and rebuilds whatever one of them touches.
        depends=sorted(
            str(path)
            for path in CORE.rglob("*")
            if path.is_file() and path.suffix in {".py", ".pxd", ".pyx", ".c", ".h", ".md", ".sh"}
        ),
        define_macros=[("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")] if TRACE else [],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )
    for source in sorted(CORE.glob("*.pyx"))
]


def compiled() -> list[Extension]:
    """The modules of ``COMPILED`` as one library, ``pyreplog__mypyc``, and for each a small extension that fetches
    it from there."""
    from mypyc.build import mypycify  # noqa: PLC0415  (not wanted with PURE)

    sources = [
        str(Path("src/pyreplog", layer, f"{name}.py")) for layer, names in COMPILED.items() for name in names.split()
    ]
    options = ["--config-file=", "--ignore-missing-imports", "--cache-dir=build/mypyc-cache"]
    settings = {"opt_level": OPTIMIZE, "debug_level": "0", "group_name": "pyreplog", "target_dir": "build/mypyc"}
    # A file of C for each module: together they would be 22 MB in one, which keeps one processor
    # busy for a minute.
    extensions = list(mypycify([*options, *sources], multi_file=True, **settings))
    for extension in extensions:
        # Of generated code, by whatever compiler: its warnings are for those who write mypyc.
        extension.extra_compile_args = [one for one in extension.extra_compile_args if one != "-Werror"]
    return extensions


class Apart(build_ext):
    """The objects of each extension in a folder of its own: extensions are built side by side, and several have the
    same kernels. So are the files of one extension."""

    def build_extension(self, ext: Extension) -> None:
        """As ever, of a copy of this command: another thread builds another one."""
        alone = copy.copy(self)
        alone.build_temp = os.path.join(self.build_temp, ext.name)
        alone.compiler = copy.copy(self.compiler)
        alone.compiler.compile = self._compile
        build_ext.build_extension(alone, ext)

    def _compile(self, sources: list[str], **settings: Any) -> list[str]:
        """The objects of ``sources``."""
        with ThreadPoolExecutor(max(self.parallel, 1) if type(self.parallel) is int else 1) as pool:
            return [
                name
                for names in pool.map(lambda source: self.compiler.compile([source], **settings), sources)
                for name in names
            ]


def forget_others(extensions: list[Extension]) -> None:
    """What an earlier build compiled of Python and this one does not must not go into a wheel."""
    names = {Path(*extension.name.split(".")) for extension in extensions}
    for library in Path("build").glob("lib*"):
        for built in library.rglob("*.so"):
            if (
                built.parent.name != "_core"
                and built.relative_to(library).with_name(built.name.partition(".")[0]) not in names
            ):
                built.unlink()


BUILDS = {"build", "build_ext", "bdist_wheel", "editable_wheel", "install"}

python = []
if BUILDS & set(sys.argv) and not (SANITIZE or TRACE or DEBUG or BARE):
    python = [] if PURE else compiled()
    if "--inplace" not in sys.argv:  # which only puts beside the sources what it has built itself
        forget_others(python)

setup(
    # What takes longest goes first: the others are built beside it.
    ext_modules=python
    + cythonize(
        [] if BARE else extensions,
        include_path=[str(CORE)],
        build_dir=(
            None if TRACE else os.environ.get("BUILD_DIR", "build/cython")
        ),  # coverage wants the C beside the .pyx
        compiler_directives={
            "language_level": "3",
            "embedsignature": True,
            "auto_pickle": False,
            "autotestdict": False,
            "linetrace": TRACE,
        },
    ),
    cmdclass={"build_ext": Apart},
    # What is not optimized lies apart, or the next build would find it up to date.
    options={
        "build_ext": {"parallel": os.cpu_count() or 1},
        **({"build": {"build_base": "build/quick"}} if QUICK else {}),
    },
    cffi_modules=[f"{CORE}/platform_build.py:ffi"] if (CORE / "platform_build.py").exists() and not BARE else [],
)

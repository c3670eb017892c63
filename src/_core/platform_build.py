"""Builds ``pyreplog._core._platform`` from ``platform.c`` (cffi, API mode). ``setup.py`` names it in ``cffi_modules``.

The declarations below repeat ``platform.h``; the compiler checks them against it.
"""

from __future__ import annotations

import cffi

ffi = cffi.FFI()
ffi.cdef(
    """
    int rl_sync_data(int fd);
    int rl_sync_all(int fd);
    int rl_preallocate(int fd, int64_t size);
    int rl_start_writeout(int fd, int64_t position, int64_t size);
    int rl_drop_cache(int fd, int64_t position, int64_t size);
    int rl_watch_open(int *fd);
    int rl_watch_add(int fd, const char *path);
    """
)
ffi.set_source(
    "pyreplog._core._platform",
    '#include "platform.h"',
    sources=["src/_core/platform.c"],
    include_dirs=["src/_core"],
    depends=["src/_core/platform.h"],
)

"""Builds ``pyreplog._core._platform`` from ``platform.c``, ``file.c`` and ``syncs.c`` (cffi, API mode).
``setup.py`` names it in ``cffi_modules``.

The declarations below repeat ``platform.h``, ``file.h`` and ``syncs.h``; the compiler checks them against those.
"""

from __future__ import annotations

import cffi

ffi = cffi.FFI()
ffi.cdef(
    """
    int rl_sync_data(int fd);
    extern int (*rl_sync_call)(int fd);
    int rl_sync_all(int fd);
    int rl_preallocate(int fd, int64_t size);
    int rl_start_writeout(int fd, int64_t position, int64_t size);
    int rl_drop_cache(int fd, int64_t position, int64_t size);
    int rl_watch_open(int *fd);
    int rl_watch_add(int fd, const char *path);

    typedef struct rl_file rl_file;
    rl_file *rl_file_new(int fd, const rl_file *before);
    int rl_file_let_go(rl_file *file);
    int rl_file_sync(rl_file *file);
    void rl_file_start_sync(rl_file *file, int64_t position, int64_t size);
    int rl_file_error(const rl_file *file);
    int rl_file_users(const rl_file *file);

    #define RL_SYNCS_MAX 8
    typedef struct rl_syncs rl_syncs;
    rl_syncs *rl_syncs_new(void);
    void rl_syncs_free(rl_syncs *group);
    int rl_syncs_begin(rl_syncs *group, rl_file *const *files, int count);
    int rl_syncs_wait(rl_syncs *group, int64_t timeout_ns, int *codes);
    int rl_syncs_wait_below(rl_syncs *group, int below, int64_t timeout_ns, int *codes);
    void rl_syncs_wake(rl_syncs *group);
    """
)
ffi.set_source(
    "pyreplog._core._platform",
    '#include "platform.h"\n#include "file.h"\n#include "syncs.h"',
    sources=["src/_core/platform.c", "src/_core/file.c", "src/_core/syncs.c"],
    include_dirs=["src/_core"],
    depends=["src/_core/platform.h", "src/_core/file.h", "src/_core/syncs.h"],
)

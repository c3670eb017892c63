"""System calls that Python lacks, through cffi. See ``src/_core/platform.h``.

Each function returns 0 or a positive errno; ``ENOSYS`` where the system has no such call. The GIL is released around each.
"""

from typing import Any, Protocol, type_check_only

@type_check_only
class _Lib(Protocol):
    def rl_sync_data(self, fd: int, /) -> int: ...
    def rl_sync_all(self, fd: int, /) -> int: ...
    def rl_preallocate(self, fd: int, size: int, /) -> int: ...
    def rl_start_writeout(self, fd: int, position: int, size: int, /) -> int: ...
    def rl_drop_cache(self, fd: int, position: int, size: int, /) -> int: ...

ffi: Any
lib: _Lib

"""Memory that ends where a page ends, with a page behind it that nobody may read: one byte too far is a crash, not
luck."""

from __future__ import annotations

import ctypes
import mmap

PAGE = mmap.PAGESIZE


class GuardedMemory:
    """Room for ``size`` bytes. One view at a time: ``place`` overwrites what was placed before."""

    def __init__(self, size: int = 16 * PAGE) -> None:
        self.capacity = -(-size // PAGE) * PAGE
        self.map = mmap.mmap(-1, self.capacity + PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        if libc.mprotect(start + self.capacity, PAGE, 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")

    def place(self, data: bytes) -> memoryview:
        """``data`` with its last byte just before the guard."""
        start = self.capacity - len(data)
        self.map[start : self.capacity] = data
        return memoryview(self.map)[start : self.capacity]

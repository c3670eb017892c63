"""What of a block's memory the system may take back."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[3] / "src" / "_core" / "kernels"
SPARED = """
#include <sys/mman.h>
#include <stddef.h>
static size_t *told;
static int tell(void *p, size_t size) { told[0] = (size_t)p; told[1] = (size_t)p + size; return 0; }
#define madvise(p, size, how) tell(p, size)
#include "arrow_abi.h"
void spared(size_t first, size_t size, size_t *range) { told = range; pages_spare((void *)first, size); }
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "spared.c").write_text(SPARED)
    command = [
        os.environ.get("CC", "cc"),
        "-std=gnu11",
        "-shared",
        "-fPIC",
        f"-I{KERNELS}",
        str(folder / "spared.c"),
        "-o",
        str(folder / "spared.so"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    loaded = ctypes.CDLL(str(folder / "spared.so"))
    loaded.spared.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
    return loaded


@pytest.mark.parametrize("page", [4096, 16384, 65536])
@pytest.mark.parametrize("offset", [0, 64, 4096, 20480])
@pytest.mark.parametrize("size", [100, 1 << 21, (1 << 21) + 4096, (1 << 21) + 20480, (3 << 20) + 1, (3 << 20) - 1])
def test_no_part_of_a_page_is_given_back(kernel: ctypes.CDLL, page: int, offset: int, size: int) -> None:
    """Whatever size pages have: those of Apple and of some ARM servers are larger than 4 KiB. The system rounds to
    whole ones, so with a part of a page it would take what is behind the block, which is somebody else's."""
    start = (1 << 30) + offset
    told = (ctypes.c_size_t * 2)()
    kernel.spared(start, size, told)
    first, last = told
    if size >= 1 << 21:
        assert last > first
    assert first % page == last % page == 0
    assert (first, last) == (0, 0) or start <= first < last <= start + size

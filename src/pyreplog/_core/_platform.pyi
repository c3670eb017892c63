"""System calls that Python lacks, through cffi. See ``src/_core/platform.c``."""

from typing import Any

ffi: Any
lib: Any

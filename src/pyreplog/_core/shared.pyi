from typing import Final, final

APPEND_DONE: Final[int]
APPEND_REFUSED: Final[int]

@final
class QuickAppend:
    def __init__(self) -> None: ...
    def append(self, fd: int, place: int, expected: bytes, position: int, data: bytes) -> int: ...

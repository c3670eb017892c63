"""Messages of magic 0 and 1, Kafka's formats before 0.11."""

from typing_extensions import Buffer

def legacy_messages(
    data: Buffer, position: int = 0
) -> tuple[list[tuple[int, int, int, int, int, int, int, int, int]], int]:
    """The whole messages from ``position`` on, up to the first that is cut or no message of magic 0 or 1, and the
    byte behind the last.

    Each: offset, timestamp (-1 for magic 0), magic, attributes, size in bytes, then start and size of key and of
    value in ``data`` (-1, -1 where null). Their CRC-32 is checked: CorruptError where the first one's is wrong,
    others end the walk.
    """

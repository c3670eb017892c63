"""Messages of magic 0 and 1, Kafka's formats before 0.11."""

from typing_extensions import Buffer

def legacy_messages(
    data: Buffer, position: int = 0
) -> tuple[list[tuple[int, int, int, int, int, int, int, int, int]], int]:
    """Return the complete messages of magic 0 and 1 from ``position`` on, and the position after the last one.

    Each: offset, timestamp (-1 for magic 0), magic, attributes, size in bytes, then start and size of key and of
    value in ``data`` (-1, -1 if null). The walk ends at a message that is cut off or has another magic. The CRC-32
    of each is checked: a wrong one is a CorruptError in the first message, and ends the walk in a later one.
    """

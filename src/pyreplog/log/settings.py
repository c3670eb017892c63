"""The settings of one log, kept in its folder: ``replog.config``, a small state file with Kafka's keys."""

from __future__ import annotations

from typing import Final

from pyreplog.config import LogConfig
from pyreplog.errors import ConfigError, CorruptError
from pyreplog.log.layout import CONFIG_NAME, join, parent_of
from pyreplog.log.snapshot import format_state, read_state, replace_file
from pyreplog.ports import Disk

_VERSION_NAME: Final = "version"
_VERSION: Final = "0"
_DURABILITY: Final = "durability"


def read_config(disk: Disk, directory: str) -> LogConfig | None:
    """Return the settings kept in ``directory``, or None if there are none or the file is damaged.

    The mark still holds the durability then. Raises :class:`ConfigError` if the file has another version.
    """
    try:
        values = read_state(disk, join(directory, CONFIG_NAME))
    except CorruptError:
        return None
    if values is None:
        return None
    version = values.pop(_VERSION_NAME, None)
    if version != _VERSION:
        raise ConfigError(f"{join(directory, CONFIG_NAME)} is of version {version}, this pyreplog reads {_VERSION}")
    return LogConfig.from_mapping(values)


def format_config(config: LogConfig) -> bytes:
    """Return the content of the file for ``config``."""
    return format_state({_VERSION_NAME: _VERSION, _DURABILITY: config.durability, **config.to_mapping()})


def write_config(disk: Disk, directory: str, config: LogConfig) -> None:
    """Replace the settings in ``directory`` by ``config``, durably."""
    replace_file(disk, join(directory, CONFIG_NAME), format_config(config), reserve_in=parent_of(directory))

"""open_queue: one worker of a queue over an open log."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from pyreplog.errors import ConfigError
from pyreplog.log import join, make_folder
from pyreplog.readers import JournalIdentity, QueueJournal, check_reader_name, queue_file_name
from pyreplog.runtime.dead_letter_log import DeadLetterLog
from pyreplog.runtime.folder_opening import folder_of
from pyreplog.runtime.log_place import LogPlace
from pyreplog.runtime.logger import LOGGER
from pyreplog.runtime.queue import Queue
from pyreplog.runtime.queue_worker import QueueWorker
from pyreplog.runtime.views import CommittedView, ReaderView, WriterView
from pyreplog.system import anchored

__all__ = ["open_queue"]

MARK: Final = "replog.mark"


def open_queue(
    place: LogPlace,
    view: WriterView | ReaderView | CommittedView,
    name: object,
    offsets: str | os.PathLike[str] | None,
    dead_letters: str | os.PathLike[str] | None,
    on_close: Callable[[Queue], None],
) -> Queue:
    """Return one more worker of the queue ``name`` over the log that ``view`` reads."""
    checked = check_reader_name(name, "a queue")
    view.refresh()
    disk = place.disk
    folder = _home(place, view) if offsets is None else _chosen(place, offsets)
    letters = DeadLetterLog(place, view, None if dead_letters is None else folder_of(dead_letters))
    is_sync = view.config.durability == "sync"
    identity = JournalIdentity(checked, view.topic_id, view.partition)
    path = join(folder, queue_file_name(checked))
    journal = QueueJournal.open(
        disk, path, identity, is_sync=is_sync, start_offset=view.start_offset, on_damage=LOGGER.warning
    )
    try:
        worker = QueueWorker(checked, view, journal, place.clock, letters, is_sync=is_sync)
        return Queue(checked, worker, view, on_close)
    except BaseException:
        journal.close()
        raise


def _home(place: LogPlace, view: WriterView | ReaderView | CommittedView) -> str:
    """Return the folder of the journal beside the log."""
    folder = view.directory
    if place.disk.stat(join(folder, MARK)) is None:
        raise ConfigError(
            f"{folder} has no {MARK}, so another program writes it, such as a broker: keep the queue's journal in"
            " another folder with offsets=FOLDER"
        )
    return place.home(folder)


def _chosen(place: LogPlace, offsets: str | os.PathLike[str]) -> str:
    """Return the folder ``offsets``, which is made if it is missing."""
    folder = folder_of(offsets)
    # As the log's own folder: absolute, unless the caller brought a disk.
    folder = anchored(folder) if os.path.isabs(place.folder) else folder
    if place.disk.stat(folder) is None:
        make_folder(place.disk, folder)
    return folder

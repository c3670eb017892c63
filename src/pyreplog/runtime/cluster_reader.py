"""What a ClusterReader does: it reads a cluster's topics from their files, beside the process that runs the cluster. It
takes no lock and starts no node."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Literal, NoReturn, SupportsIndex, Unpack, overload

from pyreplog.arrow import TOPIC_COLUMNS, Scan
from pyreplog.config import Permissions, check_seconds, whole
from pyreplog.errors import ClosedError, ConfigError, ReadOnlyError
from pyreplog.ports import Clock, Disk
from pyreplog.record import Record
from pyreplog.runtime.admin import Admin
from pyreplog.runtime.catalog import Catalog
from pyreplog.runtime.cluster_node import ClusterNode
from pyreplog.runtime.cluster_options import (
    ClusterReaderSettings,
    ClusterWriterSettings,
    reader_place,
    refuse_writer_settings,
)
from pyreplog.runtime.consumer_settings import NamedConsumerSettings, NamedReaderSettings, ReaderSettings
from pyreplog.runtime.descriptions import TopicDescription
from pyreplog.runtime.deserializers import Deserializer, Deserializers
from pyreplog.runtime.folder_opening import check_name
from pyreplog.runtime.log_place import close_parts
from pyreplog.runtime.logger import LOGGER
from pyreplog.runtime.named_consumer import NamedConsumer
from pyreplog.runtime.producer import Producer
from pyreplog.runtime.reader_consumer import MAX_POLL_RECORDS, ReaderConsumer, Reset
from pyreplog.runtime.reader_opening import TopicReaders, check_reader_settings
from pyreplog.runtime.send_functions import Partitioner
from pyreplog.runtime.subscription import Subject
from pyreplog.runtime.table import ClusterTable
from pyreplog.runtime.table_opening import TopicTables
from pyreplog.runtime.views import ReaderView
from pyreplog.system import SystemClock, current_process
from pyreplog.values import TopicPartition

__all__ = ["ReaderAdmin", "ReaderFace"]


class ReaderFace:
    """The methods of a ClusterReader, which subclasses this class and Cluster. They read files and call no node.

    This module does not import the module of Cluster, because that one imports this class.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        nodes: None = None,
        *,
        mode: Literal["r"] = "r",
        disk: Callable[[str], Disk] | None = None,
        clock: Clock | None = None,
        permissions: Permissions = "owner",
        **refused: Unpack[ClusterWriterSettings],
    ) -> None:
        """Open the folder for reading. Nothing is locked, written or recovered.

        ``nodes`` and the ``refused`` settings belong to ``mode="a"``: each raises ConfigError.
        """
        refuse_writer_settings({"nodes": nodes, **refused})
        settings: ClusterReaderSettings = {"disk": disk, "clock": clock, "permissions": permissions}
        self._path, self._disk = reader_place(path, settings)
        self._process = current_process()
        self._closed = False
        self._readers: weakref.WeakSet[ReaderConsumer] = weakref.WeakSet()
        self._catalog = Catalog(self._disk, self._path)
        self._named = TopicReaders(self._disk, SystemClock() if clock is None else clock, self._path)
        self._tables = TopicTables(self._disk, self._path)
        if refusal := self._catalog.untrusted():
            LOGGER.warning("%s; it is read all the same", refusal)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a ClusterReader cannot be copied or pickled: open the cluster with mode='r' in each process")

    # ---------------------------------------------------------------------------------------- facts

    @property
    def path(self) -> str:
        """The cluster's folder."""
        return self._path

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    @property
    def mode(self) -> Literal["a", "r"]:
        """The mode ``"r"``: this object only reads."""
        return "r"

    @property
    def cluster_id(self) -> str:
        """The cluster's id; "" if no file holds it."""
        self._check()
        return self._catalog.cluster_id

    def topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of the topics, sorted; with ``internal`` also of a system's own ones, ``__...``."""
        self._check()
        return self._catalog.topics(internal=internal)

    def describe(self, name: str) -> TopicDescription:
        """Return one topic's partitions and settings, as the controller wrote them last: a leader may have died since.

        Without a controller's file (a broker's folder) the description comes from the folders: partitions, the nodes
        that have a copy, the newest leader epoch; the leader is -1 then. Raises UnknownTopicError.
        """
        self._check()
        check_name(name)
        return self._catalog.describe(name)

    @property
    def admin(self) -> Admin:
        """The admin, for ``admin.topics()`` and ``admin.describe(name)``; its other methods raise ReadOnlyError."""
        self._check()
        return ReaderAdmin(self)

    # -------------------------------------------------------------------------------------- reading

    @overload
    def consumer(self, topics: Subject, *, name: None = None, **settings: Unpack[ReaderSettings]) -> ReaderConsumer: ...
    @overload
    def consumer(self, topics: Subject, *, name: str, **settings: Unpack[NamedConsumerSettings]) -> NamedConsumer: ...
    def consumer(
        self,
        topics: Subject,
        *,
        name: str | None = None,
        auto_offset_reset: Reset = "earliest",
        max_poll_records: int = MAX_POLL_RECORDS,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        **named: Unpack[NamedReaderSettings],
    ) -> ReaderConsumer:
        """Return a consumer of a topic (all its partitions), a (topic, partition) pair, or several of these.

        ``name``: a :class:`NamedConsumer`, which keeps its place under this name in the folder; its settings are those
        of :meth:`Log.consumer`, ``max_poll_records`` and the deserializers. Without a name:

        ``auto_offset_reset``: where to begin, and where to go on if the records at a position were deleted; ``"none"``:
        begin at the first record, and raise OffsetOutOfRangeError after a deletion. ``max_poll_records``: the most
        records that one poll returns. ``key_deserializer``, ``value_deserializer``: see :meth:`Cluster.consumer`.
        Raises ConfigError, UnknownTopicError, StorageError if a partition has no folder.
        """
        self._check()
        check_reader_settings(name, named, {"auto_offset_reset": (auto_offset_reset, "earliest")})
        if auto_offset_reset not in ("earliest", "latest", "none"):
            raise ConfigError(f"auto_offset_reset is {auto_offset_reset!r}; it must be 'earliest', 'latest' or 'none'")
        count = whole("max_poll_records", max_poll_records, 1)
        functions = Deserializers(key_deserializer, value_deserializer).checked()
        if name is not None:
            return self._named.open(topics, name, named, count, functions)
        consumer = ReaderConsumer(
            self._disk, self._catalog, topics, auto_offset_reset, count, self._readers.discard, functions
        )
        self._readers.add(consumer)
        return consumer

    def table(
        self,
        topic: str,
        store: str | os.PathLike[str] | None = None,
        *,
        partitioner: Partitioner | None = None,
        progress: Callable[[TopicPartition, int, int], object] | None = None,
    ) -> ClusterTable:
        """Return the latest value of each key of a topic, as a Mapping of bytes to bytes that follows the topic.

        See :meth:`Cluster.table`. ``store`` is needed for a broker's folder, and if this user may not write in the
        cluster's.
        """
        self._check()
        return self._tables.open(topic, store, partitioner, progress)

    def follow(self, topics: Subject, *, timeout: float | None = None) -> Iterator[Record]:
        """Yield all records of these partitions, then each new one as soon as it may be read.

        It ends if no record came for ``timeout`` seconds (None: never), and when the cluster is closed. Each
        partition's records come in order. A ``consumer`` does the same from any position. Raises UnknownTopicError at
        once.
        """
        patience = check_seconds("timeout", timeout)
        return self.consumer(topics)._follow(patience)

    def scan(
        self,
        topic: str,
        columns: Sequence[str] | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        start_timestamp: int | datetime | None = None,
        end_timestamp: int | datetime | None = None,
    ) -> Scan:
        """Return a topic as Arrow columns, partition after partition, below the high watermark.

        The arguments are those of :meth:`Cluster.scan`. Raises UnknownTopicError, StorageError if a
        partition has no folder, OffsetOutOfRangeError.
        """
        self._check()
        check_name(topic)
        readers = self._catalog.open([TopicPartition(topic, number) for number in self._catalog.numbers(topic)])
        return Scan(
            [(reader.partition, ReaderView(reader, self._disk)) for reader in readers],
            name=f"topic {topic!r}",
            columns=columns,
            default_columns=TOPIC_COLUMNS,
            checked=True,
            start=start,
            end=end,
            start_timestamp=start_timestamp,
            end_timestamp=end_timestamp,
            spread=True,
        )

    # ----------------------------------------------------------------------------- only for writers

    def producer(self, *args: object, **settings: object) -> Producer:
        """Raise ReadOnlyError: only the process that runs the cluster writes."""
        raise self._refuse("it sends no records")

    @property
    def nodes(self) -> Sequence[ClusterNode]:
        """Raise ReadOnlyError: the nodes run in the process that writes."""
        raise self._refuse("it runs no nodes")

    def node(self, node_id: int) -> ClusterNode:
        """Raise ReadOnlyError: the nodes run in the process that writes."""
        raise self._refuse("it runs no nodes")

    @property
    def controller(self) -> ClusterNode | None:
        """Raise ReadOnlyError: the nodes run in the process that writes."""
        raise self._refuse("it runs no nodes")

    def leader(self, topic: str, partition: int = 0) -> ClusterNode | None:
        """Raise ReadOnlyError: the nodes run in the process that writes. ``describe`` returns the leader's number."""
        raise self._refuse("it runs no nodes; describe() gives the leader's number")

    def metrics(self, **settings: object) -> NoReturn:
        """Raise ReadOnlyError: the nodes run in the process that writes. `replog top` reads the folders."""
        raise self._refuse("it runs no nodes; `replog top` reads their folders")

    def metrics_text(self, **settings: object) -> NoReturn:
        """Raise ReadOnlyError: the nodes run in the process that writes."""
        raise self._refuse("it runs no nodes; `replog top` reads their folders")

    def _refuse(self, why: str) -> ReadOnlyError:
        self._check()
        return ReadOnlyError(
            f"the cluster {self._path!r} was opened with mode='r', so {why}: do that in the process that has it open"
            " with Cluster(path)"
        )

    # -------------------------------------------------------------------------------------- the end

    def close(self, timeout: float | None = None) -> None:
        """Close the consumers and release the files. A second call is harmless. ``timeout`` has no effect, because a
        reader does not wait; it exists so that readers and writers are closed alike."""
        check_seconds("timeout", timeout)
        self._closed = True
        close_parts([*self._readers, self._named, self._tables])

    def _check(self) -> None:
        if self._process.left:
            raise self._process.refuse(f"the cluster {self._path!r}")
        if self._closed:
            raise ClosedError(f"the cluster {self._path!r} is closed: open it again to use it")

    def __repr__(self) -> str:
        return f"<pyreplog.ClusterReader {self._path!r}{', closed' if self._closed else ''}>"


class ReaderAdmin(Admin):
    """Describes topics from the files. It is ``admin`` of a :class:`ClusterReader`."""

    def __init__(self, cluster: ReaderFace) -> None:
        """Called by the cluster only."""
        self._cluster = cluster

    def topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of the topics, sorted. See :meth:`ClusterReader.topics`."""
        return self._cluster.topics(internal=internal)

    def describe(self, name: str) -> TopicDescription:
        """Return one topic's partitions and settings. See :meth:`ClusterReader.describe`."""
        return self._cluster.describe(name)

    def create_topic(self, *args: object, **settings: object) -> NoReturn:
        """Raise ReadOnlyError."""
        raise self._cluster._refuse("it makes no topics")

    def create_topics(self, *args: object, **settings: object) -> NoReturn:
        """Raise ReadOnlyError."""
        raise self._cluster._refuse("it makes no topics")

    def delete_topic(self, *args: object, **settings: object) -> NoReturn:
        """Raise ReadOnlyError."""
        raise self._cluster._refuse("it deletes no topics")

    def create_partitions(self, *args: object, **settings: object) -> NoReturn:
        """Raise ReadOnlyError."""
        raise self._cluster._refuse("it makes no partitions")

    def alter_config(self, *args: object, **settings: object) -> NoReturn:
        """Raise ReadOnlyError."""
        raise self._cluster._refuse("it changes no settings")

    def alter_cluster_config(self, *args: object, **settings: object) -> NoReturn:
        """Raise ReadOnlyError."""
        raise self._cluster._refuse("it changes no settings")

    def describe_cluster(self) -> NoReturn:
        """Raise ReadOnlyError."""
        raise self._cluster._refuse("it has no nodes")

    def describe_quorum(self, *args: object, **settings: object) -> NoReturn:
        """Raise ReadOnlyError: `replog quorum describe` reads the folders."""
        raise self._cluster._refuse("it has no nodes; `replog quorum describe` reads their folders")

    def list_partitions(self, *args: object, **settings: object) -> NoReturn:
        """Raise ReadOnlyError: `replog topics --under-replicated` reads the folders."""
        raise self._cluster._refuse("it has no nodes; `replog topics --under-replicated` reads their folders")

    def replace_node(self, *args: object, **settings: object) -> NoReturn:
        """Raise ReadOnlyError."""
        raise self._cluster._refuse("it has no nodes")

    def add_nodes(self, *args: object, **settings: object) -> NoReturn:
        """Raise ReadOnlyError."""
        raise self._cluster._refuse("it has no nodes")

    def remove_nodes(self, *args: object, **settings: object) -> NoReturn:
        """Raise ReadOnlyError."""
        raise self._cluster._refuse("it has no nodes")

    def cordon(self, *args: object, **settings: object) -> NoReturn:
        """Raise ReadOnlyError."""
        raise self._cluster._refuse("it places no replicas")

    uncordon = cordon

    def rebalance(self, *args: object, **settings: object) -> NoReturn:
        """Raise ReadOnlyError."""
        raise self._cluster._refuse("it moves no replicas")

    alter_replication_factor = rebalance

    def reassign(self, *args: object, **settings: object) -> NoReturn:
        """Raise ReadOnlyError."""
        raise self._cluster._refuse("it moves no replicas")

    def list_reassignments(self) -> NoReturn:
        """Raise ReadOnlyError."""
        raise self._cluster._refuse("it moves no replicas")

    def cancel_reassignment(self, *args: object, **settings: object) -> NoReturn:
        """Raise ReadOnlyError."""
        raise self._cluster._refuse("it moves no replicas")

    def delete_records(self, *args: object, **settings: object) -> NoReturn:
        """Raise ReadOnlyError."""
        raise self._cluster._refuse("it deletes no records")

    def compact(self, *args: object, **settings: object) -> NoReturn:
        """Raise ReadOnlyError."""
        raise self._cluster._refuse("it compacts no topics")

    def recover_partition(self, *args: object, **settings: object) -> NoReturn:
        """Raise ReadOnlyError."""
        raise self._cluster._refuse("it elects no leaders")

    def elect_leaders(self, *args: object, **settings: object) -> NoReturn:
        """Raise ReadOnlyError."""
        raise self._cluster._refuse("it elects no leaders")

    def __repr__(self) -> str:
        return f"<pyreplog.Admin of {self._cluster!r}>"

"""The ids of a log root and of a partition folder: ``meta.properties`` and ``partition.metadata``, in Kafka's
form."""

from __future__ import annotations

import base64
import binascii
import datetime
from collections.abc import Mapping
from typing import Final

from pyreplog.errors import ConfigError, CorruptError, excerpt
from pyreplog.log.layout import INT32_MAX, META_PROPERTIES_NAME, PARTITION_METADATA_NAME, join, parent_of
from pyreplog.log.snapshot import parse_number, read_whole, replace_file
from pyreplog.ports import Disk, Lock, RandomBytes

UUID_SIZE: Final = 16
ROLES_PROPERTY: Final = "process.roles"
"""The roles of the node, as in the configuration of a Kafka server. Kafka leaves it in the file."""
_RESERVED_BELOW: Final = 100
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class RootIdentity:
    """The ids of the log root at ``path``, which its ``meta.properties`` holds.

    While the root is open, this object holds that file, so that a second writer is refused even if
    a user removed the lock file. :meth:`claim` raises :class:`ConfigError` if the file has other
    ids than the caller expects.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._properties: dict[str, str] | None = None
        self._hold: Lock | None = None
        self.node_id = 0
        self.cluster_id = ""
        self.directory_id = ""
        #: The value of ``process.roles``; None: the file has none.
        self.roles: str | None = None

    @property
    def was_written(self) -> bool:
        """Whether the file existed at :meth:`claim`."""
        return self._properties is not None

    def claim(self, random: RandomBytes, node_id: int | None, cluster_id: str | None) -> None:
        """Read the file and hold it. ``node_id`` and ``cluster_id`` are the expected ids; None takes
        those in the file, or new ones."""
        self._properties = read_properties(self._disk, self._path)
        if self._properties is not None:
            self._hold = self._disk.hold(join(self._path, META_PROPERTIES_NAME))
        kept_node = self._kept_node_id()
        if kept_node is not None and node_id is not None and kept_node != node_id:
            raise ConfigError(f"{self._path} belongs to node {kept_node}, not to node {node_id}")
        properties = self._properties or {}
        kept_cluster = properties.get("cluster.id")
        if kept_cluster is not None and cluster_id is not None and kept_cluster != cluster_id:
            raise ConfigError(f"{self._path} belongs to cluster {kept_cluster[:64]}, not to cluster {cluster_id}")
        self.node_id = kept_node if kept_node is not None else (node_id or 0)
        self.cluster_id = kept_cluster or cluster_id or random_uuid(random)
        self.directory_id = properties.get("directory.id") or random_uuid(random)
        self.roles = properties.get(ROLES_PROPERTY)

    def _kept_node_id(self) -> int | None:
        properties = self._properties or {}
        written = properties.get("node.id", properties.get("broker.id"))
        if written is None:
            return None
        try:
            return parse_number(written, 0, INT32_MAX)
        except ValueError:
            raise ConfigError(
                f"{self._path}: node.id in meta.properties is {written[:64]!r}, no number of a node"
            ) from None

    def write(self, wall_ms: int) -> None:
        """Write the file durably, unless it has all ids already, and hold the new file."""
        properties = self._properties or {}
        wanted = {
            **{name: value for name, value in properties.items() if name != "broker.id"},
            "node.id": str(self.node_id),
            "directory.id": self.directory_id,
            "version": "1",
            "cluster.id": self.cluster_id,
            **({} if self.roles is None else {ROLES_PROPERTY: self.roles}),
        }
        if wanted != properties:
            write_properties(self._disk, self._path, wanted, wall_ms)
            self.release()  # the replaced file is held
            self._hold = self._disk.hold(join(self._path, META_PROPERTIES_NAME))

    def release(self) -> None:
        """Release the file, so that another writer may hold it."""
        if self._hold is not None:
            self._hold.release()
            self._hold = None


def encode_uuid(raw: bytes) -> str:
    """Return Kafka's text for 16 bytes: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def decode_uuid(text: str) -> bytes:
    """Return the 16 bytes of a Kafka id. Raises ValueError if ``text`` is none."""
    try:
        raw = base64.b64decode(text.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raw = b""
    if len(raw) != UUID_SIZE:
        raise ValueError(f"{excerpt(text)} is not an id of 22 characters of URL-safe base64")
    return raw


def random_uuid(random: RandomBytes) -> str:
    """Return a new id that neither begins with a dash nor is one of Kafka's reserved ids."""
    while True:
        raw = random.randbytes(UUID_SIZE)
        text = encode_uuid(raw)
        if not text.startswith("-") and int.from_bytes(raw, "big") >= _RESERVED_BELOW:
            return text


def id_for_name(topic: str) -> str:
    """Return the id for a topic that a Kafka before 2.8 created without one: a hash of its name, so that it is the
    same on every node."""
    import hashlib  # noqa: PLC0415  (rarely needed, and slow to load)

    raw = bytearray(hashlib.sha256(b"topic " + topic.encode()).digest()[:16])
    raw[0] &= 0x7F  # so that the text does not begin with "-"
    return encode_uuid(bytes(raw))


def read_topic_id(disk: Disk, directory: str) -> str | None:
    """Return the topic id in ``partition.metadata``, or None if there is no such file. Raises :class:`CorruptError`
    if its content is invalid."""
    path = join(directory, PARTITION_METADATA_NAME)
    content = read_whole(disk, path)
    if content is None:
        return None
    # Bytes end a line only at CR and LF, as in Java; text also ends one at a control character.
    lines = [line.decode("utf-8", "replace") for line in content.splitlines()]
    if len(lines) < 2:
        raise CorruptError("expected a version and a topic id", file=path)
    version_name, _, version = lines[0].partition(":")
    id_name, _, topic_id = lines[1].partition(":")
    topic_id = topic_id.strip()
    if version_name != "version" or not version.strip().isdigit() or id_name != "topic_id":
        raise CorruptError("expected 'version: 0' and 'topic_id: ...'", file=path)
    try:
        raw = decode_uuid(topic_id)
    except ValueError as error:
        raise CorruptError(str(error), file=path) from None
    if not any(raw):
        raise CorruptError("the topic id is zero", file=path)
    return topic_id


def format_topic_id(topic_id: str) -> bytes:
    """Return the content of ``partition.metadata`` as Kafka writes it. Raises ValueError if ``topic_id`` is no id."""
    decode_uuid(topic_id)
    return f"version: 0\ntopic_id: {topic_id}".encode()


def write_topic_id(disk: Disk, directory: str, topic_id: str) -> None:
    """Write ``partition.metadata`` in ``directory``, durably."""
    replace_file(
        disk, join(directory, PARTITION_METADATA_NAME), format_topic_id(topic_id), reserve_in=parent_of(directory)
    )


def read_properties(disk: Disk, root: str) -> dict[str, str] | None:
    """Return the entries of ``meta.properties`` in ``root``, or None if there is no such file."""
    path = join(root, META_PROPERTIES_NAME)
    content = read_whole(disk, path)
    return None if content is None else parse_properties(content)


def parse_properties(content: bytes) -> dict[str, str]:
    """Return the entries of a Java properties file without continued lines (Kafka writes none)."""
    values: dict[str, str] = {}
    for line in content.decode("latin-1").splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        cut = next(
            (index for index, letter in enumerate(stripped) if letter in "=:" and stripped[index - 1 : index] != "\\"),
            len(stripped),
        )
        values[_unescape(stripped[:cut].strip())] = _unescape(stripped[cut + 1 :].strip())
    return values


def write_properties(disk: Disk, root: str, values: Mapping[str, str], wall_ms: int) -> None:
    """Write ``meta.properties`` durably, with the blank comment and the date that Kafka puts on top."""
    lines = [
        "#",
        f"#{_java_date(wall_ms)}",
        *(f"{_escape(name)}={_escape(value)}" for name, value in values.items()),
        "",
    ]
    content = "\n".join(lines).encode("latin-1", "backslashreplace")
    replace_file(disk, join(root, META_PROPERTIES_NAME), content, reserve_in=root)


def keep_roles(disk: Disk, root: str, roles: str, wall_ms: int) -> None:
    """Store the roles of the node in the ``meta.properties`` of ``root``, durably. REQUIRES that there is one, and that
    no writer has the root open."""
    properties = read_properties(disk, root) or {}
    if properties.get(ROLES_PROPERTY) != roles:
        write_properties(disk, root, {**properties, ROLES_PROPERTY: roles}, wall_ms)


def _java_date(wall_ms: int) -> str:
    """Return a date such as ``Sat Nov 21 03:57:49 UTC 2026``, independent of the locale."""
    moment = datetime.datetime.fromtimestamp(wall_ms // 1000, datetime.UTC)
    return f"{_DAYS[moment.weekday()]} {_MONTHS[moment.month - 1]} {moment.day:02d} {moment:%H:%M:%S} UTC {moment.year}"


def _escape(text: str) -> str:
    for letter in "\\:=#!":
        text = text.replace(letter, "\\" + letter)
    return text


def _unescape(text: str) -> str:
    out: list[str] = []
    letters = iter(text)
    for letter in letters:
        out.append(next(letters, "") if letter == "\\" else letter)
    return "".join(out)

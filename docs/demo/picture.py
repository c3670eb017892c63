"""The demo's picture: the run of the log, and New York's flights by its records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import polars as pl
from matplotlib.axes import Axes

INK, QUIET, GOOD, BAD, LATE = "#1b2a3a", "#8b98a5", "#2f7fb8", "#c8443a", "#e0a030"


class Moment(NamedTuple):
    """Something to mark on the time line."""

    at_s: float
    text: str
    colour: str


def draw(
    path: Path,
    *,
    progress: Sequence[tuple[float, int]],
    moments: Sequence[Moment],
    delays: pl.DataFrame,
    day: pl.DataFrame,
    day_name: str,
) -> None:
    """Write a PNG to ``path``.

    ``progress`` is (seconds, flights acknowledged); ``delays`` has carrier, flights, delay; ``day`` has hour,
    flights, delay.
    """
    plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 10, "axes.edgecolor": QUIET, "text.color": INK})
    figure = plt.figure(figsize=(13, 8), dpi=130, facecolor="white")
    grid = figure.add_gridspec(
        2, 2, height_ratios=(1, 1.25), hspace=0.42, wspace=0.2, left=0.06, right=0.96, top=0.83, bottom=0.07
    )
    figure.text(0.06, 0.945, "336,776 flights through a three-node log", fontsize=19, weight="bold")
    figure.text(
        0.06,
        0.905,
        "a leader killed at one third, the whole process at two thirds: nothing acknowledged was lost",
        fontsize=12,
        color=QUIET,
    )
    _time_line(figure.add_subplot(grid[0, :]), progress, moments)
    _delays(figure.add_subplot(grid[1, 0]), delays)
    _day(figure.add_subplot(grid[1, 1]), day, day_name)
    figure.savefig(path)
    plt.close(figure)


def _bare(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, weight="bold", pad=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=QUIET, length=0)


def _time_line(axes: Axes, progress: Sequence[tuple[float, int]], moments: Sequence[Moment]) -> None:
    _bare(axes, "Acknowledged flights over time (seconds)")
    axes.fill_between([at for at, _ in progress], [count / 1000 for _, count in progress], color=GOOD, alpha=0.18, lw=0)
    axes.plot([at for at, _ in progress], [count / 1000 for _, count in progress], color=GOOD, lw=2)
    axes.set_ylim(0, 400)
    axes.set_xlim(0, max(at for at, _ in progress) * 1.01)
    axes.set_yticks([0, 100, 200, 300], ["0", "100k", "200k", "300k"])
    axes.grid(axis="y", color=QUIET, alpha=0.2)
    for number, moment in enumerate(moments):
        axes.axvline(moment.at_s, color=moment.colour, lw=1.4, ls=(0, (4, 3)))
        place = (moment.at_s, 390 - 36 * (number % 3))
        paper = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}  # a line that crosses the text passes behind it
        axes.annotate(
            moment.text,
            place,
            xytext=(5, 0),
            textcoords="offset points",
            color=moment.colour,
            va="top",
            fontsize=9,
            bbox=paper,
        )


def _delays(axes: Axes, delays: pl.DataFrame) -> None:
    _bare(axes, "Mean departure delay (minutes), by Spark and by Polars")
    rows = delays.sort("delay").rows(named=True)
    places = range(len(rows))
    axes.barh(
        places,
        [row["delay"] for row in rows],
        color=[LATE if row["delay"] >= 15 else GOOD for row in rows],
        height=0.68,
    )
    axes.set_yticks(places, [row["carrier"] for row in rows], family="monospace", color=INK)
    axes.set_xticks([])
    axes.text(
        0.99,
        0.01,
        "orange: 15 minutes or more",
        transform=axes.transAxes,
        fontsize=8.5,
        color=LATE,
        va="bottom",
        ha="right",
    )
    axes.spines[["bottom"]].set_visible(False)
    for place, row in zip(places, rows, strict=True):
        axes.text(row["delay"] + 0.25, place, f"{row['delay']:.1f}", va="center", fontsize=9)
        axes.text(0.25, place, f"{row['flights']:,} flights", va="center", fontsize=7.5, color="white", alpha=0.9)


def _day(axes: Axes, day: pl.DataFrame, day_name: str) -> None:
    _bare(axes, f"{day_name} through the time index: departures per hour, UTC")
    axes.bar(
        day["hour"],
        day["flights"],
        color=[LATE if late >= 20 else GOOD for late in day["delay"].fill_null(0)],
        width=0.8,
    )
    axes.set_xticks(range(0, 24, 3))
    axes.set_xlim(-0.6, 23.6)
    axes.set_ylim(0, max(1, *day["flights"]) * 1.15)
    axes.grid(axis="y", color=QUIET, alpha=0.2)
    axes.text(
        0.01,
        0.99,
        "orange: on average 20 minutes late or more",
        transform=axes.transAxes,
        fontsize=8.5,
        color=LATE,
        va="top",
    )

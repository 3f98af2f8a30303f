"""What stands on a replay's page: the figures, the pictures with their tables, how to read them.

Limits: what is drawn over time has curves.POINTS points; MAX_ROWS queues have a row of marks, those
with the most jobs, and MAX_TABLE a row in the table. So the page of any trace is below 2 MB.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

from services import api
from shared.model.units import NANOS_PER_SECOND
from tools.replay.comparison import (
    COMPARED,
    Find,
    Interval,
    compared,
    names_of,
    over_seeds,
    text_of,
)
from tools.replay.curves import POINTS, Course, Curves, Gang
from tools.replay.figures import Figures, left_out
from tools.replay.page.axes import amounts, duration, ratios, times, waits
from tools.replay.page.markup import Child, Element, document, el, short
from tools.replay.page.plots import Line, Mark, key_of, lines, rows
from tools.replay.setup import Setup

MAX_ROWS = 20  # queues of a replay's page that are drawn; the others are in its table
MAX_TABLE = 200  # queues in the table of a replay's page; those with fewer jobs are omitted
_STYLES = (
    Path(api.__file__).with_name("page") / "style.css",
    Path(__file__).with_name("report.css"),
)
# The figures above the pictures: those that are compared, and these of every setup.
_COUNTS: tuple[tuple[str, Find], ...] = (
    ("jobs started", lambda found: found["started"]),
    ("jobs refused", lambda found: found["refused"]),
    ("median wait s", lambda found: found["all"].get("medianWaitSeconds")),
    ("95 % wait at most s", lambda found: found["all"].get("p95WaitSeconds")),
    ("longest wait s", lambda found: found["all"].get("longestWaitSeconds")),
    ("waiting on average", lambda found: found["meanWaiting"]),
    ("waiting at most", lambda found: found["mostWaiting"]),
)
_WAITED = (
    ("mean", "meanWaitSeconds"),
    ("median", "medianWaitSeconds"),
    ("95 %", "p95WaitSeconds"),
    ("slowdown", "boundedSlowdown"),
)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A setup, the figures of its seeds, and the curves of the first: the trace as it is."""

    setup: Setup
    seeds: Sequence[Figures]
    curves: Curves

    @property
    def name(self) -> str:
        """Return what it is called on the page."""
        return short(self.setup.name, 40)


def page_of(replays: Sequence[Replayed], spread_seconds: int | None) -> bytes:
    """Return the page of one setup, or of several side by side."""
    first = replays[0].seeds[0]
    title = f"{short(first['trace'], 80)}: {first['jobs']:,} jobs"
    style = "\n".join(path.read_text(encoding="utf-8") for path in _STYLES)
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{title} - muster replay"),
    )
    sheet = el("style")
    sheet.text = style
    head.append(sheet)
    main = el(
        "main",
        el("p", "muster replay", class_="crumbs"),
        el("h1", title),
        *(_setup_line(replayed) for replayed in replays),
        *_figures(replays),
        el("div", *_pictures(replays), class_="pictures"),
        *_notes(len(replays[0].seeds), spread_seconds),
    )
    return document(el("html", head, el("body", main), lang="en"))


def _setup_line(replayed: Replayed) -> Element:
    found = replayed.seeds[0]
    settings = ", ".join(f"{name}={value}" for name, value in replayed.setup.scheduler.items())
    left = "".join(f" {short(text)}" for text in left_out(found))
    text = (
        f": {found['nodes']:,} nodes, {found['capacity']:,} {found['unit']}; "
        f"{short(settings) or 'no settings but the defaults'}.{left}"
    )
    return el("p", el("strong", replayed.name), text, class_="facts-line")


# --- tables -------------------------------------------------------------------------------------


def _table(caption: str, heads: Iterable[str], cells: Iterable[Sequence[str]]) -> Element:
    """Return a table; the first of each row is its name, the others are numbers."""
    name, *numbers = heads
    columns = (el("th", text, scope="col", class_="number") for text in numbers)
    top = el("tr", el("th", name, scope="col"), *columns)
    body = [
        el("tr", el("th", first, scope="row"), *(el("td", text, class_="number") for text in rest))
        for first, *rest in cells
    ]
    made = el(
        "table", el("caption", caption), el("thead", top), el("tbody", *body), class_="figures"
    )
    return el("div", made, class_="scrolls", tabindex="0", role="region", aria_label=caption)


def _figures(replays: Sequence[Replayed]) -> list[Element]:
    names = [replayed.name for replayed in replays]
    found = compared([replayed.seeds for replayed in replays])
    cells = [
        [name, *(text_of(over_seeds(replayed.seeds, find)) for replayed in replays)]
        for name, find in (*COMPARED, *_COUNTS)
    ]
    parts = [_table("All jobs", ["figure", *names], cells)]
    if len(replays) > 1:
        more = [
            [name, *(text_of(row["difference"][name]) for row in found[1:])] for name, _ in COMPARED
        ]
        caption = f"How much more than {names[0]}, seed by seed"
        parts.append(_table(caption, ["figure", *names[1:]], more))
    return parts


# --- pictures -----------------------------------------------------------------------------------


def _pictures(replays: Sequence[Replayed]) -> list[Element]:
    unit = replays[0].seeds[0]["unit"]
    sizes = names_of([found for replayed in replays for found in replayed.seeds], "bySize")
    queues = _busiest_queues(replays)
    pictures = [
        _over_time(replays, "utilisation", "Utilisation, %", f"Of all {unit}, those in use.",
                   lambda c: _percent(c.used, c.capacity), " %"),
        _over_time(replays, "waiting", "Jobs waiting", "Submitted, and without a place as yet.",
                   lambda c: c.waiting.means()),
        _waits(replays, "bySize", f"Wait by size in {unit}",
               "A job counts at the next power of two.", sizes),
        _waits(replays, "byQueue", "Wait by queue", _queues_text(len(queues)), queues),
        _over_time(replays, "fragmentation", "Fragmentation, %",
                   f"Of all {unit}, those free on nodes partly in use.",
                   lambda c: _percent(c.broken, c.capacity), " %"),
        _slowdown(replays),
    ]  # fmt: skip
    return [*pictures, _evictions(replays), *_gangs(replays)]


def _gangs(replays: Sequence[Replayed]) -> list[Element]:
    """Return a Gantt chart of the widest gangs; [] where there is no gang."""
    first = replays[0].curves.widest
    if not first:
        return []
    ends = [
        max(gang.ended_ns, gang.started_ns, gang.submitted_ns)
        for replayed in replays
        for gang in replayed.curves.widest
    ]
    end_ns = max(*ends, NANOS_PER_SECOND)
    drawn = [
        (
            gang.name,
            [_gang_mark(at, r, r.curves.widest[row], end_ns) for at, r in enumerate(replays)],
        )
        for row, gang in enumerate(first)
    ]
    spoken = "; ".join(mark.said for _, marks in drawn for mark in marks)
    title = "The widest gang" if len(first) == 1 else f"The {len(first)} widest gangs"
    said = "Thin: it waits. Mark: its first start. Thick: until it has ended."
    picture = rows("gangs", title, spoken, times(end_ns / NANOS_PER_SECOND), drawn)
    heads = ["gang", "size"] + [
        f"{replayed.name}: {word}" if len(replays) > 1 else word
        for replayed in replays
        for word in ("submitted", "wait", "ended")
    ]
    unit = _divisor(replays[0])
    cells = [
        [
            gang.name,
            f"{gang.size / unit:,.10g}",
            *(text for r in replays for text in _gang_cells(r.curves.widest[row])),
        ]
        for row, gang in enumerate(first)
    ]
    return [_figure(title, said, replays, picture, _table(title, heads, cells))]


def _divisor(replayed: Replayed) -> int:
    """Return how many of what sizes are counted in are one of the unit that is shown."""
    shown = replayed.seeds[0]["capacity"]
    return round(replayed.curves.capacity / shown) if shown else 1


def _gang_mark(setup: int, replayed: Replayed, gang: Gang, end_ns: int) -> Mark:
    came, start, end = (
        (at if at >= 0 else end_ns) / NANOS_PER_SECOND
        for at in (gang.submitted_ns, gang.started_ns, gang.ended_ns)
    )
    waited = f"waits {duration(start - came)}" if gang.started_ns >= 0 else "never starts"
    said = f"{gang.name}, {replayed.name}: {waited}"
    return Mark(setup, start, (came, start), said, (start, end) if gang.started_ns >= 0 else None)


def _gang_cells(gang: Gang) -> list[str]:
    waited_ns = gang.started_ns - gang.submitted_ns
    moments = (gang.submitted_ns, waited_ns if gang.started_ns >= 0 else -1, gang.ended_ns)
    return [str(timedelta(seconds=at // NANOS_PER_SECOND)) if at >= 0 else "-" for at in moments]


def _evictions(replays: Sequence[Replayed]) -> Element:
    if not any(replayed.curves.evictions.finals[-1] for replayed in replays):
        return el("figure", el("figcaption", el("h2", "Evictions"), el("p", "No pod was evicted.")))
    said = "An evicted job starts again from the beginning."
    return _over_time(
        replays, "evictions", "Evictions so far", said,
        lambda curves: [float(value) for value in curves.evictions.finals],
    )  # fmt: skip


def _percent(course: Course, capacity: int) -> list[float]:
    return [100 * value / capacity if capacity else 0.0 for value in course.means()]


def _figure(
    title: str, said: str, replays: Sequence[Replayed], picture: Child, table: Child
) -> Element:
    keys = [el("span", key_of(at), replayed.name) for at, replayed in enumerate(replays)]
    return el(
        "figure",
        el("figcaption", el("h2", title), el("p", said)),
        el("div", *keys, class_="legend") if len(replays) > 1 else None,
        picture,
        el("details", el("summary", "As a table"), table),
    )


def _over_time(
    replays: Sequence[Replayed], name: str, title: str, said: str,
    values_of: Callable[[Curves], list[float]], unit: str = "",
) -> Element:  # fmt: skip
    """Return a figure of what was so over time; all setups in parts of one length."""
    step_ns = max(replayed.curves.used.step_ns for replayed in replays)
    step = step_ns / NANOS_PER_SECOND
    curves = [replayed.curves.widened(step_ns) for replayed in replays]
    found = [values_of(curve) for curve in curves]
    ends = [curve.used.end_ns / NANOS_PER_SECOND for curve in curves]
    drawn = [
        Line(at, [(min((part + 0.5) * step, end), value) for part, value in enumerate(values)])
        for at, (values, end) in enumerate(zip(found, ends, strict=True))
    ]
    spoken = "; ".join(
        f"{replayed.name}: from {min(values):,.1f} to {max(values):,.1f}, at last {values[-1]:,.1f}"
        for replayed, values in zip(replays, found, strict=True)
    )
    y = amounts(100 if name == "utilisation" else max(map(max, found)), unit)
    last = (curves[0].submitted_ns / NANOS_PER_SECOND, "last submission")
    picture = lines(name, title, spoken, times(max(ends)), y, drawn, last)
    cells = [
        [str(timedelta(seconds=part * step)), *(_at(values, part) for values in found)]
        for part in range(max(map(len, found)))
    ]
    heads = ["from", *(replayed.name for replayed in replays)]
    return _figure(title, said, replays, picture, _table(title, heads, cells))


def _at(values: Sequence[float], part: int) -> str:
    return f"{values[part]:,.1f}" if part < len(values) else "-"


def _slowdown(replays: Sequence[Replayed]) -> Element:
    title = "Slowdown: how many jobs are at most so slow, %"
    said = "Of those that started. (wait + run) / max(run, 10 s), and at least 1."
    slow = [replayed.curves.slowdowns for replayed in replays]
    spoken = "; ".join(
        f"{replayed.name}: of half the jobs up to {values[50]:,.2f}, of all up to {values[-1]:,.2f}"
        for replayed, values in zip(replays, slow, strict=True)
        if values
    )
    x = ratios(max((values[-1] for values in slow if values), default=1))
    drawn = [
        Line(at, [(value, float(percent)) for percent, value in enumerate(values)])
        for at, values in enumerate(slow)
    ]
    picture = lines("slowdown", title, spoken, x, amounts(100, " %"), drawn)
    cells = [
        [f"{percent} %", *(f"{values[percent]:,.2f}" if values else "-" for values in slow)]
        for percent in range(101)
    ]
    heads = ["of the jobs", *(replayed.name for replayed in replays)]
    return _figure(title, said, replays, picture, _table(title, heads, cells))


# --- waits by size and by queue -----------------------------------------------------------------


def _busiest_queues(replays: Sequence[Replayed]) -> list[str]:
    jobs: dict[str, int] = {}
    for replayed in replays:
        for name, group in replayed.seeds[0]["byQueue"].items():
            jobs[name] = max(jobs.get(name, 0), group["jobs"])
    return sorted(jobs, key=lambda name: (-jobs[name], name))


def _queues_text(count: int) -> str:
    if count <= MAX_ROWS:
        return "The queue with the most jobs first."
    table = f"the table has {MAX_TABLE}" if count > MAX_TABLE else "the table has them all"
    return f"The {MAX_ROWS} of {count:,} queues with the most jobs; {table}."


def _waits(
    replays: Sequence[Replayed], groups: str, title: str, said: str, names: Sequence[str]
) -> Element:
    """Return a figure of the mean waits of some groups of jobs, a mark a setup."""
    drawn = [
        (name, [mark for at, r in enumerate(replays) if (mark := _mark(at, r, groups, name))])
        for name in names[:MAX_ROWS]
    ]
    reach = [
        value for _, marks in drawn for mark in marks for value in (mark.value, *(mark.span or ()))
    ]
    spoken = "; ".join(mark.said for _, marks in drawn for mark in marks)
    has_seeds = len(replays[0].seeds) > 1
    bar = (
        "the 95 % interval over the seeds"
        if has_seeds
        else "from the median to the 95th percentile"
    )
    picture = rows(groups, title, spoken, waits(max(reach, default=0)), drawn)
    heads = ["", "jobs"] + [
        f"{replayed.name}: {word}" if len(replays) > 1 else word
        for replayed in replays
        for word, _ in _WAITED
    ]
    table = _table(
        f"{title}, in seconds",
        heads,
        (_waited(replays, groups, name) for name in names[:MAX_TABLE]),
    )
    return _figure(title, f"{said} Mark: the mean. Bar: {bar}.", replays, picture, table)


def _mark(setup: int, replayed: Replayed, groups: str, name: str) -> Mark | None:
    mean, median, p95, _ = _figures_of(replayed.seeds, groups, name)
    if mean is None:
        return None
    value = mean["mean"]
    span: tuple[float, float] | None
    if len(replayed.seeds) > 1:
        half = mean.get("plusMinus", 0.0)
        span = (max(0.0, value - half), value + half)
    else:
        span = (median["mean"], p95["mean"]) if median and p95 else None
    return Mark(setup, value, span, f"{name}, {replayed.name}: {text_of(mean)} s")


def _figures_of(seeds: Sequence[Figures], groups: str, name: str) -> list[Interval | None]:
    def find(key: str) -> Find:
        return lambda found: found[groups].get(name, {}).get(key)

    return [over_seeds(seeds, find(key)) for _, key in _WAITED]


def _waited(replays: Sequence[Replayed], groups: str, name: str) -> list[str]:
    jobs = max(found[groups].get(name, {}).get("jobs", 0) for r in replays for found in r.seeds)
    found = [figure for r in replays for figure in _figures_of(r.seeds, groups, name)]
    return [name, f"{jobs:,}", *map(text_of, found)]


def _notes(seeds: int, spread_seconds: int | None) -> list[Element]:
    means = (
        "Means are over the time from the first submission to the last; waits are from a job's "
        "submission to the start of its last pod, and only those of jobs that started."
    )
    thinned = (
        f"Curves over time are reduced to at most {POINTS} points: each is the mean over its "
        "part (of evictions, how many there were at its end), so peaks are lower than they were."
    )
    said = [means, thinned]
    if seeds > 1:
        others, means_of = (
            "the others are months drawn from its weeks and users.",
            "how much a figure depends on which weeks and users there are.",
        )
        if spread_seconds is not None:
            others = (
                f"in the others every submission is moved by up to {spread_seconds:,} s either way."
            )
            means_of = (
                "how much a figure depends on the order of arrivals, not how it would be in "
                "another month."
            )
        said.append(
            f"{seeds} seeds: the first is the trace as it is, which is what is drawn over time; "
            f"{others} ± is half of a 95 % interval (Student's t): {means_of}"
        )
    return [el("h2", "How to read it"), *(el("p", text, class_="note") for text in said)]

"""Pictures of a replay as SVG: lines over an axis, and marks in rows.

Rule 1: text is never scaled. A picture is as wide as its column; places in it are percent of that,
        and only lines are in a box of their own that is stretched, their strokes are not.
Rule 2: a setup has one colour, one dash and one shape everywhere: the class ``s`` and its number.
Rule 3: every picture has a title and a sentence for those who do not see it; what it is drawn from
        stands in a table below it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tools.replay.page.axes import Axis
from tools.replay.page.markup import Element, el, short

BOX = 1000  # the side of the box in which lines are drawn
ROW_PX, ROW_HEAD_PX = 16, 8  # of marks in rows: a setup's row, and what is between names
MAX_NAME = 17  # characters of a row's name in a chart; the table has it whole
# Around 0, 0; one for each setup in turn.
SHAPES = (
    "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0Z",
    "M-4 -4H4V4H-4Z",
    "M0 -5.5L5.5 0L0 5.5L-5.5 0Z",
    "M0 -5L5 4H-5Z",
    "M0 5L5 -4H-5Z",
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a setup: its points, from left to right."""

    setup: int
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark of a setup in a row, the span beside it (None: there is none), and what it says.

    ``bar`` is a part of the span that is drawn thick.
    """

    setup: int
    value: float
    span: tuple[float, float] | None
    said: str
    bar: tuple[float, float] | None = None


def lines(
    name: str, title: str, said: str, x: Axis, y: Axis, drawn: Sequence[Line],
    moment: tuple[float, str] | None = None,
) -> Element:  # fmt: skip
    """Return lines over two axes; ``moment`` is marked on x, with its word."""
    box = el("svg", viewBox=f"0 0 {BOX} {BOX}", preserveAspectRatio="none")
    for line in drawn:
        points = " ".join(
            f"{x.place(at) * BOX / 100:.1f},{BOX - y.place(value) * BOX / 100:.1f}"
            for at, value in line.points
        )
        box.append(el("polyline", class_=f"line s{line.setup}", points=points))
    made = _picture(name, title, said, "over-time")
    made.extend(_grid(x, y))
    if moment is not None:
        at, word = x.place(moment[0]), moment[1]
        made.append(
            el("line", class_="moment", x1=f"{at:.2f}%", x2=f"{at:.2f}%", y1="0", y2="100%")
        )
        side = "end" if at > 50 else "start"  # noqa: PLR2004 - percent
        made.append(el("text", word, class_=side, x=f"{at:.2f}%", y="0", dy="-5"))
    made.append(box)
    return made


def _grid(x: Axis, y: Axis) -> list[Element]:
    found: list[Element] = []
    for at, text in y.ticks:
        place = f"{100 - at:.2f}%"
        found.append(el("line", class_="grid", x1="0", x2="100%", y1=place, y2=place))
        found.append(el("text", text, class_="end", x="0", y=place, dx="-7", dy="4"))
    return [*found, *_below(x)]


def _below(x: Axis) -> list[Element]:
    """Return the marks of an axis below a picture."""
    found: list[Element] = []
    for number, (at, text) in enumerate(x.ticks):
        parity = "odd" if number % 2 else "even"
        place = f"{at:.2f}%"
        found.append(el("line", class_="tick", x1=place, x2=place, y1="0", y2="100%"))
        found.append(el("text", text, class_=f"middle {parity}", x=place, y="100%", dy="17"))
    return found


def rows(
    name: str, title: str, said: str, x: Axis, drawn: Sequence[tuple[str, Sequence[Mark]]]
) -> Element:
    """Return marks in rows, each with its name at the left."""
    made = _picture(name, title, said, "by-name")
    made.extend(_below(x))
    top = 0
    for row, marks in drawn:
        height = max(1, len(marks)) * ROW_PX + ROW_HEAD_PX
        middle = top + height // 2
        made.append(el("line", class_="grid", x1="0", x2="100%", y1=top, y2=top))
        made.append(
            el("text", short(row, MAX_NAME), class_="end", x="0", y=middle, dx="-9", dy="4")
        )
        for at, mark in enumerate(marks):
            y = top + ROW_HEAD_PX // 2 + ROW_PX * at + ROW_PX // 2
            made.append(_marked(x, y, mark))
        top += height
    made.append(el("line", class_="grid", x1="0", x2="100%", y1=top, y2=top))
    made.set("height", str(top))
    return made


def _marked(x: Axis, y: int, mark: Mark) -> Element:
    group = el("g", el("title", mark.said), class_=f"mark s{mark.setup}")
    if mark.span is not None:
        low, high = (f"{x.place(value):.2f}%" for value in mark.span)
        group.append(el("line", class_="span", x1=low, x2=high, y1=y, y2=y))
    if mark.bar is not None:
        low, high = (f"{x.place(value):.2f}%" for value in mark.bar)
        group.append(el("line", class_="bar", x1=low, x2=high, y1=y, y2=y))
    at = f"{x.place(mark.value):.2f}%"
    group.append(el("svg", shape_of(mark.setup), x=at, y=y))
    return group


def shape_of(setup: int) -> Element:
    """Return a setup's shape."""
    return el("path", d=SHAPES[setup % len(SHAPES)])


def key_of(setup: int) -> Element:
    """Return a setup's line and shape, as they stand beside its name."""
    line = el("line", class_=f"line s{setup}", x1="0", x2="34", y1="7", y2="7")
    mark = el("svg", el("g", shape_of(setup), class_=f"mark s{setup}"), x="17", y="7")
    return el("svg", line, mark, width="34", height="14", class_="drawn", aria_hidden="true")


def _picture(name: str, title: str, said: str, kind: str) -> Element:
    """Return a picture in which nothing is drawn as yet."""
    return el(
        "svg",
        el("title", title, id=f"{name}-title"),
        el("desc", said, id=f"{name}-said"),
        class_=f"picture {kind}",
        role="img",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-said",
    )

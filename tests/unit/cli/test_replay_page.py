"""The page of a replay: what is drawn is what was so, it asks nobody, and it stays small."""

import random
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from shared.model.gpus import GPU
from shared.model.units import NANOS_PER_SECOND
from tests.table import each_row
from tests.unit.cli.queues import EVICTING
from tools.replay.comparison import compared, t95
from tools.replay.curves import MAX_GANGS, POINTS, course_of, curves_of
from tools.replay.figures import figures_of
from tools.replay.jobs import Job, Trace, in_order
from tools.replay.page import axes
from tools.replay.page.page import MAX_ROWS, MAX_TABLE, Replayed, page_of
from tools.replay.run import Replay
from tools.replay.setup import setup_of

S = NANOS_PER_SECOND
PICTURES = ("utilisation", "waiting", "bySize", "byQueue", "fragmentation", "slowdown", "evictions",
            "gangs")  # fmt: skip


def replayed(name="setup", seeds=1, queues="", jobs=()):
    jobs = jobs or ((0, 10_000, 1, "a"), (0, 10_000, 1, "a"), (50, 10, 1, "b"), (60, 10, 2, "b"))
    made = [
        Job(f"j{at}", submit * S, run * S, queue, "user", ((pods, {GPU: 8}),))
        for at, (submit, run, pods, queue) in enumerate(jobs)
    ]
    trace = Trace("by <hand> & more", in_order(made), GPU, 2, {GPU: 8, "pods": 110})
    setup = setup_of(trace, name, queues=queues)
    outcomes = [Replay(trace.seeded(seed, 30), setup).run() for seed in range(seeds)]
    return Replayed(setup, [figures_of(found, 0) for found in outcomes], curves_of(outcomes[0]))


class Page(HTMLParser):
    """What stands on a page: its elements with their attributes, and the text in each."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page.decode())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append((self.elements[-1][0] if self.elements else "", data))

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, tag):
        return [text for name, text in self.texts if name == tag]


# --- what is drawn ------------------------------------------------------------------------------


def test_a_part_is_the_mean_of_what_was_so_in_it_and_what_was_so_at_its_end():
    course = course_of([0, 1 * S, 3 * S], [4, 8, 2], 4 * S)
    assert course.means() == [4, 8, 8, 2]
    assert course.finals == (4, 8, 8, 2)
    assert course.widened(2 * S).means() == [6, 5]
    assert course.widened(4 * S).finals == (2,)


def test_the_last_part_is_as_long_as_what_is_left():
    course = course_of([0, 2 * S], [0, 6], 2 * S + S // 2)
    assert course.means() == [0, 0, 6]


def test_what_happens_at_the_very_end_counts_as_so_at_the_end():
    assert course_of([0, 2 * S], [0, 1], 2 * S).finals == (0, 1)


@each_row("seed", range(20))
def test_however_long_a_course_is_thinned_and_loses_nothing(seed):
    drawn = random.Random(seed)
    moments = sorted({0, *(drawn.randrange(10 ** drawn.randrange(9, 19)) for _ in range(500))})
    values = [drawn.randrange(100) for _ in moments]
    course = course_of(moments, values, moments[-1])
    whole = sum(value * (b - a) for value, (a, b) in zip(values, pairwise(moments), strict=False))
    assert sum(course.integrals) == whole
    assert len(course.integrals) <= POINTS
    wide = course.widened(course.step_ns * 8)
    assert sum(wide.integrals) == whole
    assert wide.finals[-1] == course.finals[-1] == values[-1]


def test_the_curves_of_a_replay_have_its_evictions_and_end_when_nobody_waits():
    curves = replayed(queues=EVICTING).curves
    assert curves.evictions.finals[-1] == 1
    assert max(curves.waiting.finals) >= 1
    assert curves.waiting.finals[-1] == 0
    assert curves.used.end_ns > curves.submitted_ns == 60 * S


def test_jobs_that_all_come_and_start_at_once_are_drawn_to_their_end():
    curves = replayed(jobs=((0, 30, 1, "a"), (0, 10, 1, "a"))).curves
    assert curves.used.end_ns == 30 * S
    assert curves.used.means()[0] == 16
    assert curves.used.means()[-1] == 8


# --- axes ---------------------------------------------------------------------------------------


@each_row("most", [0, 0.03, 1, 7, 99, 100, 101, 12_345, 10**12])
def test_the_marks_of_an_axis_go_from_its_beginning_to_its_end_and_few_are_enough(most):
    axis = axes.amounts(most)
    assert axis.ticks[0] == (0, "0")
    assert axis.ticks[-1][0] == pytest.approx(100)
    assert 0 <= axis.place(most) <= 100 + 1e-9
    assert len(axis.ticks) <= axes.TICKS + 2
    for made in (axes.waits(most), axes.ratios(most), axes.times(max(1, most))):
        places = [at for at, _ in made.ticks]
        assert places[0] == 0
        assert 1 <= len(places) <= 7
        assert all(b - a >= 16.9 for a, b in pairwise(places))
        assert 0 <= made.place(most) <= 100 + 1e-9 or most < 1


def test_times_are_said_in_whole_units():
    said = [axes.duration(seconds) for seconds in (0, 5, 90, 120, 7200, 129_600, 864_000)]
    assert said == ["0", "5 s", "90 s", "2 min", "2 h", "36 h", "10 d"]
    assert [word for _, word in axes.times(400_000).ticks] == ["0", "1 d", "2 d", "3 d", "4 d"]


# --- the page -----------------------------------------------------------------------------------


def test_every_picture_has_a_title_a_sentence_and_a_table():
    page = Page(page_of([replayed(queues=EVICTING)], 3600))
    pictures = [found for found in page.all("svg") if found.get("role") == "img"]
    assert [found["aria-labelledby"] for found in pictures] == [f"{n}-title" for n in PICTURES]
    ids = [found["id"] for _, found in page.elements if "id" in found]
    assert ids == [f"{name}-{what}" for name in PICTURES for what in ("title", "said")]
    assert all(text.strip() for text in page.text("desc"))
    assert len(page.all("details")) == len(PICTURES) == len(page.all("figure"))


def test_the_page_asks_nobody_runs_nothing_and_its_policy_allows_its_style_alone():
    body = page_of([replayed()], 3600)
    page = Page(body)
    (style,) = page.text("style")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policies = [found["content"] for found in page.all("meta") if "http-equiv" in found]
    assert policies == [
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    ]
    assert not page.all("script") + page.all("link") + page.all("img")
    for word in (b"http://", b"https://", b"url(", b"@import", b"javascript:", b"style="):
        assert word not in body
    assert not [name for _, found in page.elements for name in found if name.startswith("on")]


def test_names_are_text_whatever_stands_in_them():
    name = "</style><script>alert(1)</script>\x1b\udcff\x00\"'&"
    page = Page(page_of([replayed(name), replayed("b")], 3600))
    assert not page.all("script")
    assert "</style><script>alert(1)</script>\\x1b" in "".join(page.text("strong"))
    assert page.text("h1") == ["by <hand> & more: 4 jobs"]


def test_nobody_evicted_is_a_sentence():
    page = Page(page_of([replayed()], 3600))
    assert "No pod was evicted." in page.text("p")
    assert len(page.all("figure")) == len(PICTURES)


def test_a_queue_that_is_not_drawn_is_said_and_stands_in_the_table():
    jobs = [(at, 1, 1, f"q{at % 30:02d}") for at in range(60)]
    page = Page(page_of([replayed(jobs=jobs)], 3600))
    assert any(
        "20 of 30 queues with the most jobs; the table has them all" in text
        for text in page.text("p")
    )
    assert "q29" in page.text("th")
    assert page.text("text").count("q19") == 1
    assert "q29" not in page.text("text")


def test_the_widest_gangs_are_drawn_from_their_submission_to_their_end():
    jobs = [(at, 10, 1 + at % 2, "a") for at in range(60)] + [(70, 10, 3, "a")]
    found = replayed(jobs=jobs)
    widest = found.curves.widest
    assert (len(widest), widest[-1].name, widest[-1].size) == (MAX_GANGS, "j60", 24)
    assert widest[-1].started_ns == widest[-1].ended_ns == -1
    assert [gang.submitted_ns for gang in widest] == sorted(gang.submitted_ns for gang in widest)
    page = Page(page_of([found], 0))
    said = page.text("title")
    assert "j60, setup: never starts" in said
    first = widest[1]
    wait_s = (first.started_ns - first.submitted_ns) // S
    assert f"{first.name}, setup: waits {axes.duration(wait_s)}" in said
    assert len([line for line in page.all("line") if line["class"] == "bar"]) == MAX_GANGS - 1


def test_every_axis_has_its_unit():
    jobs = [(0, 1_000, 1, "a"), (0, 1_000, 1, "a"), (1, 10, 1, "a")]
    marks = set(Page(page_of([replayed(jobs=jobs)], 0)).text("text"))
    assert {"100 %", "10x", "10 min"} <= marks


def test_several_setups_are_drawn_side_by_side_with_their_intervals():
    setups = [replayed("one", seeds=3), replayed("two", seeds=3, queues=EVICTING)]
    page = Page(page_of(setups, 30))
    lines = [found["class"] for found in page.all("polyline")]
    assert lines.count("line s0") == lines.count("line s1") == 5
    assert any(" ± " in text for text in page.text("td"))
    assert any("the 95 % interval over the seeds" in text for text in page.text("p"))
    assert any("moved by up to 30 s" in text for text in page.text("p"))


def test_the_page_of_the_largest_replay_is_below_two_megabytes():
    found = replayed("n" * 255, seeds=2, queues=EVICTING)
    group = dict.fromkeys(
        ("meanWaitSeconds", "medianWaitSeconds", "p95WaitSeconds", "boundedSlowdown"), 1234567.1
    )
    queues = {f"queue-{'x' * 50}-{at:05d}": {"jobs": 99_999, **group} for at in range(10_000)}
    drawn = random.Random(1)
    moments = list(range(0, 200 * S * 4096, S // 4 * 4096))
    course = course_of(moments, [drawn.randrange(10**9) for _ in moments], moments[-1])
    assert len(course.integrals) > POINTS // 2
    curves = type(found.curves)(
        10**6, 10 * S, course, course, course, course, found.curves.slowdowns
    )
    seeds = [{**figures, "byQueue": queues} for figures in found.seeds]
    body = page_of([Replayed(found.setup, seeds, curves)] * 10, 3600)
    assert len(body) < 2_000_000
    page = Page(body)
    assert sum(f"-{MAX_TABLE - 1:05d}" in text for text in page.text("th")) == 1
    assert not [text for text in page.text("th") if f"-{MAX_TABLE:05d}" in text]
    assert page.text("text").count("queue-xxxxxxxxxx…") == MAX_ROWS


# --- side by side -------------------------------------------------------------------------------


def seed_of(wait, setup="x"):
    return {
        "setup": setup, "all": {"meanWaitSeconds": wait}, "bySize": {"8": {"meanWaitSeconds": wait}},
        "byQueue": {}, "utilisationPercent": 1, "fragmentationPercent": 0, "evictions": 0,
        "neverStarted": 0,
    }  # fmt: skip


def test_a_difference_is_that_of_each_seed_and_so_is_its_interval():
    first = [seed_of(wait) for wait in (10.0, 100.0, 1000.0)]
    other = [seed_of(wait, "y") for wait in (11.0, 102.0, 1003.0)]
    rows = compared([first, other])
    assert "difference" not in rows[0]
    assert rows[1]["difference"]["mean wait s"] == {"mean": 2.0, "plusMinus": 2.484}
    assert rows[1]["mean wait s"]["plusMinus"] > 1000
    assert rows[1]["bySize"]["8"] == rows[1]["mean wait s"]
    assert rows[1]["difference"]["mean wait s of sizes over 8"] is None


@each_row(
    ("freedom", "point"),
    [(1, 12.706), (2, 4.303), (20, 2.086), (21, 2.080), (25, 2.060), (60, 2.000), (999, 1.962)],
)
def test_the_point_of_student_is_that_of_the_tables(freedom, point):
    assert t95(freedom) == pytest.approx(point, abs=0.001)

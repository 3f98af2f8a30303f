"""Usage over time: what a clock and its rows make of amounts and times."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from services.core.scheduler.constraints.fair_share import Claim, divide
from services.core.scheduler.model.usage import MONDAY_NS, PERIOD, Usage, UsageClock
from services.core.scheduler.statement.trial import UNLIMITED
from shared.model.units import seconds
from tests.table import each_row

HOUR = seconds(3_600)
DAY = 24 * HOUR
START = MONDAY_NS + 2_900 * 7 * DAY


def counted(steps, half_life_ns=0, window_ns=0, start_ns=START):
    """Return a clock and a row after steps of (ns, capacity, held)."""
    clock, row = UsageClock(half_life_ns, window_ns, start_ns), Usage()
    held = capacity = {}
    for length_ns, capacity, held in [(0, {}, {}), *steps]:
        clock.advance(clock.capacity, capacity)
        clock.advance(row, held)
        clock.pass_time(clock.now_ns + length_ns)
        clock.advance(clock.capacity, capacity)
        clock.advance(row, held)
    return clock, row


def gpus(number):
    return {"gpu": number}


# The contract's cases: usage of whom, of how many GPUs in a window.
U1 = [(144 * HOUR, gpus(16), {}), (24 * HOUR, gpus(16), gpus(16))]
U2 = [(120 * HOUR, gpus(16), {}), (24 * HOUR, gpus(16), gpus(16)), (24 * HOUR, gpus(16), {})]
U3 = [(168 * HOUR, gpus(16), gpus(8))]
U4 = [(4 * HOUR, gpus(10), gpus(6)), (6 * HOUR, gpus(10), {})]
U5 = [(4 * HOUR, gpus(10), gpus(6)), (HOUR, gpus(10), {}), (5 * HOUR, gpus(20), {})]


@each_row(
    ("steps", "half_life_ns", "share"),
    [
        (U1, DAY, "0.504"),
        (U1, 0, "0.143"),
        (U2, DAY, "0.252"),
        (U2, 0, "0.143"),
        (U3, DAY, "0.500"),
        (U3, 0, "0.500"),
        (U4, 0, "0.240"),
        (U5, 0, "0.160"),
    ],
)
def test_usage_is_a_share_of_what_there_was(steps, half_life_ns, share):
    clock, row = counted(steps, half_life_ns)
    assert f"{clock.share_ppb(row, 'gpu') / 1e9:.3f}" == share


def test_half_a_life_later_it_is_the_average_that_a_moving_one_would_be():
    """Kueue's: 8 GPUs from now on with a half-life of ten minutes, and ten minutes after."""
    minutes = 60 * seconds(1)
    clock, row = UsageClock(10 * minutes, 0, START), Usage()
    clock.advance(row, {})
    found = []
    for held in [*[gpus(8)] * 6, {}, {}]:
        clock.pass_time(clock.now_ns + 5 * minutes)
        clock.advance(row, held)
        average = clock.amounts_ns(row)["gpu"] * 693_147_180_560 // (10 * minutes)
        found.append(f"{average / 1e12:.3f}")
    assert found == ["2.343", "4.000", "5.172", "6.000", "6.586", "7.000", "4.950", "3.500"]


def test_a_thousand_gpu_hours_are_a_quarter_after_two_half_lives():
    clock = UsageClock(7 * DAY, 0, START)
    row = clock.usage_of({"gpu": 1_000 * HOUR}, START)
    clock.pass_time(START + 14 * DAY)
    clock.advance(row, {})
    assert abs(clock.amounts_ns(row)["gpu"] - 250 * HOUR) < 1_000


def test_many_steps_and_one_come_to_the_same_integer_and_a_sum_is_that_of_its_parts():
    for half_life_ns, window_ns in ((HOUR, 0), (0, 7 * DAY), (3 * DAY, 7 * DAY), (60 * HOUR, 0)):
        length_ns = 30 * HOUR  # within a period
        start_ns = START + PERIOD * half_life_ns - START % max(1, PERIOD * half_life_ns)
        once = counted([(length_ns, gpus(7), gpus(3))], half_life_ns, window_ns, start_ns)[1]
        steps = [(length_ns // 1_000, gpus(7), gpus(3))] * 1_000
        clock, often = counted(steps, half_life_ns, window_ns, start_ns)
        other = counted([(length_ns, gpus(7), gpus(4))], half_life_ns, window_ns, start_ns)[1]
        assert once.sums == often.sums
        assert once.sums["gpu"] + other.sums["gpu"] == clock.capacity.sums["gpu"]


def test_ends_of_periods_lose_nothing_that_can_be_seen():
    clock, row = counted([(300 * HOUR, gpus(16), gpus(4))], HOUR)
    assert 249_999_999 <= clock.share_ppb(row, "gpu") <= 250_000_000
    clock, row = counted([(seconds(1), gpus(16), gpus(4))] * 300, HOUR, 0, START + 31 * HOUR)
    assert 249_999_999 <= clock.share_ppb(row, "gpu") <= 250_000_000
    clock, row = counted([(10_000 * HOUR, gpus(16), gpus(4))], HOUR)
    clock.pass_time(clock.now_ns + 100_000 * HOUR)
    clock.advance(clock.capacity, gpus(16))
    clock.advance(row, gpus(8))
    assert clock.share_ppb(row, "gpu") == 500_000_000
    assert max(map(abs, clock.capacity.sums.values())).bit_length() < 160


def test_at_the_end_of_a_window_all_is_forgotten():
    clock, row = counted([(7 * DAY - HOUR, gpus(4), gpus(4)), (2 * HOUR, gpus(4), {})], 0, 7 * DAY)
    assert clock.share_ppb(row, "gpu") == 0
    clock, row = counted(
        [(7 * DAY - HOUR, gpus(4), {}), (2 * HOUR, gpus(4), gpus(3))], DAY, 7 * DAY
    )
    assert clock.share_ppb(row, "gpu") == 750_000_000


def test_usage_that_was_written_down_is_the_same_when_it_is_read():
    for half_life_ns in (0, HOUR, 7 * DAY):
        clock, row = counted([(100 * HOUR, gpus(16), {"gpu": 5, "memory": 10**15})], half_life_ns)
        again = clock.usage_of(clock.amounts_ns(row), clock.now_ns)
        for name, value in row.sums.items():
            assert abs(again.sums[name] - value) * 10**9 <= value


# --- the division -------------------------------------------------------------------------------


def claim(number, weight, used, wish, quota=0):
    return Claim(number, 0, quota, UNLIMITED, Fraction(weight), wish, Fraction(used))


@each_row(
    ("total", "k", "claims", "shares"),
    [
        (16, "0", [claim(0, 1, "0.6", 16), claim(1, 1, "0.1", 16)], [8, 8]),  # T1
        (16, "1", [claim(0, 1, "0.6", 16), claim(1, 1, "0.1", 16)], [5, 11]),
        (16, "0.5", [claim(0, 1, "0.6", 16), claim(1, 1, "0.1", 16)], [6, 10]),
        (16, "2", [claim(0, 1, "0.9", 16), claim(1, 1, "0.1", 16)], [0, 16]),
        (12, "1", [claim(0, 3, "0.5", 12), claim(1, 1, "0", 12)], [8, 4]),
        (10, "1", [claim(0, 1, "0.4", 10), claim(1, 1, "0.2", 10), claim(2, 1, "0", 2)], [3, 5, 2]),
        (8, "1", [claim(0, 1, "1", 8), claim(1, 1, "0", 3)], [5, 3]),
        (10, "1", [claim(0, 1, "0.9", 8, quota=8), claim(1, 1, "0", 10)], [8, 2]),
        (8, "1", [claim(0, 1, "2", 8)], [8]),  # T9
    ],
)
def test_what_is_over_the_quotas_is_divided_by_usage(total, k, claims, shares):
    for each in claims:
        each.share = 0
    divide(total, claims, Fraction(k))
    assert [each.share for each in claims] == shares


@given(
    st.integers(0, 200),
    st.sampled_from(["0", "0.5", "1", "4"]),
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 1_000), st.integers(0, 100), st.integers(0, 1)),
        max_size=8,
    ),
    st.randoms(use_true_random=False),
)
def test_a_division_gives_what_there_is_and_no_more_whatever_the_order(total, k, rows, chance):
    def divided(order):
        claims = [
            Claim(number, level, 0, UNLIMITED, Fraction(weight), wish, Fraction(used, 500))
            for number, (weight, used, wish, level) in order
        ]
        divide(total, claims, Fraction(k))
        return {each.number: each.share for each in claims}

    order = list(enumerate(rows))
    shares = divided(order)
    wishes = {number: row[2] if row[0] else 0 for number, row in order}
    assert all(0 <= shares[number] <= wishes[number] for number in shares)
    assert sum(shares.values()) == min(total, sum(wishes.values()))
    chance.shuffle(order)
    assert divided(order) == shares


@each_row(("k", "share"), [(1, 0.66), (2, 0.73), (4, 0.76)])
def test_a_queue_that_comes_a_day_later_catches_up(k, share):
    """Two queues want gangs of a quarter of a cluster, for ever; a alone for the first day."""
    minutes, held, had = 5, [{"gpu": 4}, {}], 0
    clock, rows = UsageClock(DAY, 0, START), [Usage(), Usage()]
    day = 24 * 60 // minutes
    for step in range(9 * day):
        clock.advance(clock.capacity, {"gpu": 4})
        for row, amount in zip(rows, held, strict=True):
            clock.advance(row, amount)
        if step >= day:
            claims = [claim(at, 1, clock.share(row, "gpu"), 4) for at, row in enumerate(rows)]
            divide(4, claims, Fraction(k))
            held = [{"gpu": each.share} for each in claims]
            had += claims[1].share if step < 2 * day else 0
        clock.pass_time(clock.now_ns + minutes * 60 * seconds(1))
    assert abs(had / (4 * day) - share) <= 0.02
    used = [clock.share_ppb(row, "gpu") for row in rows]
    assert abs(used[0] - used[1]) < 10_000_000

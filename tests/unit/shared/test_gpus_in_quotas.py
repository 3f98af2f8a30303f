"""GPUs and shares of them in one currency: only where a limit names it."""

import pytest

from shared.model.gpus import (
    GPU,
    GPU_MILLI,
    GPU_SHARE,
    amount_of,
    counted,
    counting_limit,
    room_stated,
    stated,
)
from shared.model.reasons import Shortage
from shared.model.resources import fits_limit


@pytest.mark.parametrize(
    ("amounts", "milli"),
    [({}, 0), ({GPU: 2}, 2000), ({GPU_SHARE: 300}, 300), ({GPU: 1, GPU_SHARE: 1500}, 2500)],
)
def test_gpus_and_shares_come_to_thousandths(amounts, milli):
    assert amount_of(amounts, GPU_MILLI) == milli
    assert counted(amounts).get(GPU_MILLI, 0) == milli
    assert amount_of(amounts, GPU) == amounts.get(GPU, 0)


def test_a_limit_is_shown_as_it_was_stated():
    limit = counting_limit({GPU: 4, "vcore": 1})
    assert limit == {GPU: 4, "vcore": 1, GPU_MILLI: 4000}
    assert stated(limit) == {GPU: 4, "vcore": 1}
    assert counting_limit({"vcore": 1}) == {"vcore": 1}


@pytest.mark.parametrize(
    ("amounts", "fits"),
    [({GPU: 1}, True), ({GPU_SHARE: 1000}, True), ({GPU_SHARE: 1001}, False), ({"vcore": 9}, True)],
)
def test_shares_are_held_against_a_limit_that_counts_them(amounts, fits):
    assert fits_limit(counting_limit({GPU: 1}), amounts) is fits
    assert fits_limit({GPU: 1}, amounts)


def test_what_is_left_is_said_in_whole_gpus():
    assert room_stated({GPU: 3, GPU_MILLI: 1500, "vcore": 1}) == {GPU: 1, "vcore": 1}
    assert room_stated({"vcore": 1}) == {"vcore": 1}


def test_a_shortage_of_thousandths_is_said_in_gpus():
    amount = counted({GPU_SHARE: 500, "vcore": 1})
    short = Shortage("queue root.a", "root.a", GPU_MILLI, 250, 2000, amount)
    assert str(short) == (
        "nvidia.com/gpu: queue root.a has 0.25 of 2 left, requested 0.5 "
        "(all of it: map[muster.io/gpu-share:500 vcore:1])"
    )

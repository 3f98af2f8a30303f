"""The search for victims among places: the least harm, the first of equals, and no place too many."""

from operator import itemgetter

from hypothesis import given
from hypothesis import strategies as st

from services.core.scheduler.actions.victim_search import NO_HARM, harm_of, search_places

_could = itemgetter(0)
HARM = st.tuples(st.integers(0, 2), st.integers(0, 2))
PLACES = st.lists(st.tuples(HARM, st.one_of(st.none(), HARM)), max_size=8)


@given(PLACES)
def test_what_does_the_least_harm_is_found_and_no_place_is_tried_that_could_not_do_less(drawn):
    could = [min(could, does) if does is not None else could for could, does in drawn]
    places = sorted(
        zip(could, (does for _, does in drawn), range(len(drawn)), strict=True), key=_could
    )
    tried = []

    def find(place, least):
        does, at = place
        assert least == min((harm for harm, _ in tried if harm is not None), default=None)
        tried.append((does, at))
        return None if does is None else (does, at)

    found = search_places(((could, (does, at)) for could, does, at in places), find)
    helping = [(does, at) for _, does, at in places if does is not None]
    if not helping:
        assert found is None
        return
    least = min(does for does, _ in helping)
    assert found == next(at for does, at in helping if does == least)
    best = None
    for (could, _, _), (does, _) in zip(places, tried, strict=False):
        assert best is None or could < best
        best = does if best is None or (does is not None and does < best) else best


def test_nobody_is_the_least_harm_and_lower_priority_comes_before_fewer_and_newer_ones():
    assert harm_of((), (), ()) == NO_HARM
    low = harm_of((1, 1), ("a", "b"), (-5, -9))
    high = harm_of((2,), ("a",), (-9,))
    of_one = harm_of((1, 1), ("a", "a"), (-5, -9))
    newer = harm_of((1, 1), ("a", "a"), (-7, -9))
    assert NO_HARM < newer < of_one < low < high

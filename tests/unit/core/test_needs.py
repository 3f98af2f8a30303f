"""The table of needs says what a loop over all of them would say."""

from hypothesis import given
from hypothesis import strategies as st

from services.core.scheduler.model.needs import NeedTable
from shared.model.numbers import INT64_MAX, INT64_MIN
from shared.model.resources import fits_room

KINDS = ["vcore", "memory", "pods", "gpu", "disk", "net"]
AMOUNTS = st.sampled_from([-1, 0, 1, 2, 5, INT64_MAX])
NEEDS = st.dictionaries(st.sampled_from(KINDS), AMOUNTS)
ROOMS = st.dictionaries(
    st.sampled_from([*KINDS, "unknown"]),
    st.sampled_from([INT64_MIN * 2, -1, 0, 1, 2, 5, INT64_MAX, INT64_MAX * 3]),
)
CHANGES = st.lists(st.tuples(st.integers(0, 150), st.none() | NEEDS), max_size=300)


@given(changes=CHANGES, rooms=st.lists(ROOMS, min_size=1, max_size=4))
def test_a_table_of_needs_answers_like_a_loop(changes, rooms):
    table, known = NeedTable(), {}
    for at, (key, need) in enumerate(changes):
        if need is None:
            table.discard(key)
            known.pop(key, None)
        else:
            table.add(key, need)
            known.setdefault(key, need)
        room = rooms[at % len(rooms)]
        assert table.fitting(room) == [key for key in known if fits_room(room, known[key])]
        assert (list(table), len(table), key in table) == (list(known), len(known), key in known)


def test_a_table_that_was_large_and_is_small_again_keeps_its_order():
    table = NeedTable()
    for at in range(1_000):
        table.add(at, {"vcore": at})
    for at in range(995):
        table.discard(at)
    table.add("last", {"memory": 1})
    assert table.fitting({"vcore": 997, "memory": 1}) == [995, 996, 997, "last"]

"""What is remembered of run times does not depend on the shortcut for pods that end in a row."""

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.scheduler.model.run_times import RunTimes
from tests.soak import examples

SIZES = [{"vcore": 1_000}, {"vcore": 2_000}]
ends = st.tuples(
    st.integers(0, 2),  # the application
    st.integers(0, 1),  # the pod's size
    st.integers(0, 8),  # how long it ran, ns
    st.sampled_from([0, 4, 10]),  # its stated run time, ns
)


def application(number: int) -> Any:
    request = SimpleNamespace(placeholder_ask={}, ugi=SimpleNamespace(user=f"u{number % 2}"))
    return SimpleNamespace(
        id=f"app-{number}", queue=SimpleNamespace(path="root.a"), request=request
    )


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(ends, max_size=30))
def test_pods_that_end_one_after_another_are_remembered_as_if_each_came_alone(ended):
    applications = [application(number) for number in range(3)]
    times, apart = RunTimes(), RunTimes()
    for who, size, run_ns, stated in ended:
        pod = dict(SIZES[size])
        times.ended(applications[who], pod, run_ns, stated)
        copy = cast("Any", SimpleNamespace(**vars(applications[who])))  # never the latest one
        apart.ended(copy, pod, run_ns, stated)
    assert list(times._last.items()) == list(apart._last.items())
    assert list(times._shares.items()) == list(apart._shares.items())

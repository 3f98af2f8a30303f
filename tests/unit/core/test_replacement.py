"""What becomes of placeholders and of the real pods that take their room."""

from shared.messages.interface import AllocationRelease, RemoveApplicationRequest, TerminationType
from tests.builders import Core, section

ONE = {"vcore": 1000, "pods": 1}
NODE = {"vcore": 10_000, "memory": 10_000, "pods": 20}


def placeholder_data(summary):
    return [(c.task_group_name, c.count, c.timedout, c.replaced) for c in summary.placeholders]


def told(core, name):
    """The last that the API was told of an application."""
    return [
        summary
        for answer in core.answers
        for summary in getattr(answer.message, "applications", ())
        if summary.application_id == name
    ][-1]


# --- an application that is removed ---------------------------------------------------------------


def removed_with(core):
    core.update(remove_applications=(RemoveApplicationRequest("app"),))
    core.check()
    summary = told(core, "app")
    assert summary.state == "Completed"
    return placeholder_data(summary)


def test_19_an_application_removed_with_an_allocated_placeholder_has_its_counts_closed():
    core = Core()
    core.node("n1", **NODE)
    core.gang("app", 1, ONE)
    assert removed_with(core) == [("tg", 1, 1, 0)]


def test_19_and_with_pending_ones():
    core = Core()
    core.node("n1", **NODE)
    core.application("app", placeholder_ask={"vcore": 2000, "pods": 2})
    core.asks("app", ["a"], ONE, placeholder=True, task_group_name="tg")
    core.asks("app", ["b"], {"vcore": 20_000}, placeholder=True, task_group_name="tg")
    assert len(core.partition.applications["app"].allocations) == 1
    assert removed_with(core) == [("tg", 2, 2, 0)]


def test_19_and_with_one_that_is_being_replaced_and_one_that_was():
    core = Core()
    core.node("n1", **NODE)
    core.gang("app", 3, ONE)
    released = section(core.asks("app", ["r1"], ONE, task_group_name="tg"), "released_allocations")
    core.update(releases=tuple(released))
    core.asks("app", ["r2"], ONE, task_group_name="tg")
    assert len(core.partition.applications["app"].replacing) == 1
    assert removed_with(core) == [("tg", 3, 2, 1)]


def test_19_and_with_one_that_is_being_released():
    core = Core()
    core.node("n1", **NODE)
    core.gang("app", 2, ONE)
    core.fire("app", "placeholder")
    core.update(releases=(AllocationRelease("app", "app-ph-0", TerminationType.TIMEOUT),))
    assert removed_with(core) == [("tg", 2, 2, 0)]

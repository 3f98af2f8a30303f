"""What a search keeps from step to step is what reading everything again would give."""

from contextlib import contextmanager
from dataclasses import dataclass

from hypothesis import event, given, settings
from hypothesis import strategies as st

from services.core.scheduler.actions import solver
from services.core.scheduler.actions.jobs_in_order import JobOrder, TryOrder, is_ready
from services.core.scheduler.statement.task_trees import Group, Remainder
from tests.property.test_failed_searches import Driven


@dataclass(eq=False)
class Pod:
    order: int


SETS = st.builds(
    lambda orders, least: Group("s", least, tasks=[Pod(order) for order in orders]),
    st.lists(st.integers(0, 9), max_size=5, unique=True),
    st.integers(0, 4),
)
TREES = st.recursive(
    SETS,
    lambda below: st.builds(
        lambda members, least: Group("g", min_groups=least, members=members),
        st.lists(below, min_size=1, max_size=4),
        st.one_of(st.none(), st.integers(0, 3)),
    ),
    max_leaves=8,
)


def surplus(tree, has):
    """Return what a tree can give without being unsatisfied, as its third rule is read."""
    if not tree.members:
        own = sorted(filter(has, tree.tasks), key=lambda task: task.order)
        return own[-1:] if len(own) > tree.min_tasks else []
    for member in reversed(tree.members):
        tasks = surplus(member, has) if member.is_satisfied(has) else []
        if tasks:
            return tasks
    satisfied = [member for member in tree.members if member.is_satisfied(has)]
    return satisfied[-1].all_tasks(has) if len(satisfied) > tree.needed else []


@settings(max_examples=200)
@given(tree=TREES, data=st.data())
def test_a_gang_gives_unit_by_unit_what_it_would_give_if_it_were_read_again(tree, data):
    every = tree.all_tasks(lambda _: True)
    held = dict.fromkeys(task for task in every if data.draw(st.sampled_from([True, True, False])))
    rest = Remainder(tree, held.__contains__)
    while True:
        wanted = surplus(tree, held.__contains__)
        assert tree.has_surplus(held.__contains__) == rest.has_surplus == bool(wanted)
        assert rest.is_satisfied == tree.is_satisfied(held.__contains__)
        assert rest.take_surplus() == wanted
        if not wanted:
            return
        for task in wanted:
            del held[task]


class Checked(TryOrder):
    """The order of those that are tried, beside that of all who wait, read again each time."""

    def __init__(self, trial, jobs, others, tasks_of):
        tried = dict.fromkeys(jobs)
        super().__init__(trial, tried, others, tasks_of)
        ready = [job for job in trial.asking if is_ready(job) and job not in tried]
        self._plain = JobOrder(trial, [*tried, *ready], tasks_of)

    def pop(self):
        wanted = self._plain.pop()
        while wanted is not None and wanted not in self._tried:
            event("another comes before one that is tried")
            wanted = self._plain.pop()
        found = super().pop()
        assert found is wanted
        return found

    def push(self, job):
        self._plain.push(job)
        super().push(job)


@contextmanager
def checked():
    """Have every order of a search compared."""
    solver.TryOrder = Checked
    try:
        yield
    finally:
        solver.TryOrder = TryOrder


SUBMIT = st.tuples(
    st.sampled_from("aaabbc"),
    st.integers(1, 2),  # pods
    st.sampled_from([1, 1, 1, 2]),  # cores of each
    st.sampled_from([0, 0, 5]),
    st.booleans(),  # a gang
)


@settings(max_examples=60)
@given(
    first=st.lists(st.sampled_from("abc"), min_size=5, max_size=8),
    rounds=st.lists(st.lists(SUBMIT, min_size=2, max_size=8), min_size=1, max_size=3),
)
def test_those_that_are_tried_have_their_turn_as_among_all_who_wait(first, rounds):
    driven = Driven(policy="kai")
    for leaf in first:
        driven.do("submit", leaf, 1, 1, 0, False)
    with checked():
        for submits in rounds:
            for submit in submits:
                driven.do("submit", *submit)
            driven.do("look", 1)
            driven.do("gone", 50)
    driven.core.check()

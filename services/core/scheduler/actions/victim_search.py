"""The search for victims: place after place, and of what lets asks start there the least harm.

Rule 1: a policy names the places in which victims may be: a node for one ask, a domain for a gang,
        or all nodes. Those in which the least harm could be done come first, each with that harm.
Rule 2: in a place the policy finds victims: who is eligible, in which order they go, and what must
        hold once they have gone, on the nodes and in the queues. Those that are not needed stay.
Rule 3: of all places the one with the least harm is taken, of equal ones the first. The search ends
        when none of those that are left could do less.

Policies: the smallest set on one node (``policies/preemption_choice.py``); a gang whose members
preempt one by one (``policies/gang_preemption.py``); a job that is placed again together with
those that were evicted for it (``actions/solver.py``).
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from shared.model.numbers import INT64_MAX

PlaceT = TypeVar("PlaceT")
FoundT = TypeVar("FoundT")
Harm = tuple[Any, ...]  # the smaller the less; all of one search are of the same parts
NO_HARM: Harm = (-INT64_MAX, 0, 0, 0)


def search_places(
    places: Iterable[tuple[Harm, PlaceT]],
    find: Callable[[PlaceT, Harm | None], tuple[Harm, FoundT] | None],
) -> FoundT | None:
    """Return what does the least harm, or None where victims help nowhere.

    ``places`` are in the order of the least harm that each could do. ``find`` returns what helps in
    a place and how much harm that does, given the least harm that was found until then.
    """
    least: Harm | None = None
    best: FoundT | None = None
    for possible, place in places:
        if least is not None and possible >= least:
            break
        found = find(place, least)
        if found is not None and (least is None or found[0] < least):
            least, best = found
    return best


def harm_of(priorities: Iterable[int], owners: Iterable[object], newest: Iterable[int]) -> Harm:
    """Return what orders the victims of a gang: of low priority, of few owners, few, new ones.

    All three are of the same pods in the same order; ``newest`` is smaller for those that came
    later. Nobody is the least harm of all.
    """
    all_priorities = tuple(priorities)
    return (
        max(all_priorities, default=-INT64_MAX),
        len(dict.fromkeys(owners)),
        len(all_priorities),
        max(newest, default=0),
    )

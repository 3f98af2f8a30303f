"""The search for victims over several places; the result with the least harm is used.

Rule 1: a policy provides the places: a node for one ask, a domain for a gang, or all nodes, ordered
        by the least possible harm in each.
Rule 2: in a place the policy finds victims: which are eligible, their order, and the conditions on
        nodes and queues. Victims that are not needed stay.
Rule 3: the place with the least harm is used, of equal ones the first. The search ends when no
        remaining place could do less.

Used by: the smallest set on one node (``policies/preemption_choice.py``); a gang whose members
preempt one by one (``policies/gang_preemption.py``); a job placed again with its victims
(``actions/solver.py``).
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from shared.model.numbers import INT64_MAX

PlaceT = TypeVar("PlaceT")
FoundT = TypeVar("FoundT")
Harm = tuple[Any, ...]  # smaller is better; comparable within one search
NO_HARM: Harm = (-INT64_MAX, 0, 0, 0)


def search_places(
    places: Iterable[tuple[Harm, PlaceT]],
    find: Callable[[PlaceT, Harm | None], tuple[Harm, FoundT] | None],
) -> FoundT | None:
    """Return the result with the least harm, None if victims help in no place.

    ``places`` are ordered by the least possible harm of each. ``find`` returns a place's result and
    its harm, given the least harm found so far.
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
    """Return the harm of a gang's victims: highest priority, number of owners, number, age.

    The three arguments describe the same pods in the same order; ``newest`` is smaller for later
    pods. No victims are the least harm.
    """
    all_priorities = tuple(priorities)
    return (
        max(all_priorities, default=-INT64_MAX),
        len(dict.fromkeys(owners)),
        len(all_priorities),
        max(newest, default=0),
    )

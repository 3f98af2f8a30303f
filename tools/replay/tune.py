"""`muster replay --tune`: which preset or setting is best on a trace, by a goal.

Tried are the presets, and of `muster` what may be better or worse by the jobs that there are: other
orders of backfill, other shares of the cluster that may stand idle for the gang at the head, no
reservation at all. What is stated with ``--scheduler`` holds in all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.cli.answers import table
from services.cli.table import Column
from tools.replay.comparison import compared, over_seeds, text_of
from tools.replay.figures import WIDE, Figures
from tools.replay.figures_table import compared_parts

MUSTER = {"preset": "muster"}
TRIED: Mapping[str, Mapping[str, str]] = {
    "muster": MUSTER,
    "muster, shortest first": {**MUSTER, "backfill": "shortestFirst"},
    "muster, no backfill": {**MUSTER, "backfill": "disabled"},
    "muster, 1 % idle": {**MUSTER, "maxReservedNodes": "1%"},
    "muster, 5 % idle": {**MUSTER, "maxReservedNodes": "5%"},
    "muster, no reservation": {**MUSTER, "reservations": "none"},
    "design": {"preset": "design"},
    "yunikorn": {"preset": "yunikorn"},
}


@dataclass(frozen=True, slots=True)
class Goal:
    """What is wanted: how it is called in a sentence, and its figure, of which less is better."""

    words: str
    find: Callable[[Figures], Any]


def _all(key: str) -> Callable[[Figures], Any]:
    return lambda found: found["all"].get(key)


def _unfair(found: Figures) -> float | None:
    index = found["jainOfUsers"]
    return None if index is None else 1 - index


GOALS = {
    "mean": Goal("the least mean wait", _all("meanWaitSeconds")),
    "p95": Goal("the least wait of 95 % of the jobs", _all("p95WaitSeconds")),
    "wide": Goal(
        f"the least mean wait of gangs of more than {WIDE}",
        lambda found: found["bySize"].get(f"over {WIDE}", {}).get("meanWaitSeconds"),
    ),
    "fairness": Goal("slowdowns of users that are most alike (Jain's index)", _unfair),
}


def by_goal(replays: Sequence[Sequence[Figures]], goal: str) -> list[Sequence[Figures]]:
    """Return replays in the order of a goal, the best first; who leaves jobs waiting comes last."""

    def key(seeds: Sequence[Figures]) -> tuple[float, float]:
        found = over_seeds(seeds, GOALS[goal].find)
        left = sum(each["neverStarted"] + each["refused"] for each in seeds)
        return left, found["mean"] if found is not None else float("inf")

    return sorted(replays, key=key)


def tuned_value(replays: Sequence[Sequence[Figures]], goal: str) -> dict[str, Any]:
    """Return what is found as data: the setups in order, the best one's settings, every figure."""
    best = replays[0][0]["setup"]
    return {
        "goal": goal,
        "best": best,
        "settings": dict(TRIED[best]),
        "compared": compared(replays),
        "replays": [found for seeds in replays for found in seeds],
    }


def tuned_parts(replays: Sequence[Sequence[Figures]], goal: str) -> list[Any]:
    """Return what is printed: the setups by the goal, the lines to use, and everything else."""
    best = replays[0][0]["setup"]
    rows = [
        {"setup": seeds[0]["setup"], "goal": text_of(over_seeds(seeds, GOALS[goal].find))}
        for seeds in replays
    ]
    columns = (
        Column("SETUP", lambda row: row["setup"]),
        Column(f"GOAL: {goal}".upper(), lambda row: row["goal"], is_number=True),
    )
    settings = TRIED[best].items()
    return [
        table(rows, columns),
        "",
        f"{best} is best by {GOALS[goal].words}. In the ConfigMap yunikorn-configs:",
        *(f'  muster.scheduler.{name}: "{value}"' for name, value in settings),
        "or in a scenario file:",
        "  scheduler: {" + ", ".join(f"{name}: {value}" for name, value in settings) + "}",
        "",
        *compared_parts(replays, compared(replays)),
    ]

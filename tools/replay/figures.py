"""What a replay comes to: the figures of a report, each from the jobs that started.

Waits are whole seconds from a job's submission to the start of the last of its pods; of a job that
was evicted, all from its submission to its end but its run time. Lost is the share of all that ran
which an eviction made vain. The bounded slowdown is (wait + run) / max(run, 10 s), at least 1
(Feitelson et al. 1997). Utilisation and fragmentation are means over the time from the first
submission to the last one: of the size, what is in use, and what is free on nodes partly in use.
Held idle is what stood idle on nodes that were held for the head gang, as a share of the same.
Jain's index of queues, and of users, is that of their jobs' mean bounded slowdowns, of those of
whom a job started: (sum x)^2 / (n * sum x^2) (Jain, Chiu, Hawe 1984). 1: all have the same; 1/n:
one has it all.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from statistics import fmean, median
from typing import Any

from services.cli.simulated_nodes import RACK_LABEL
from shared.model.gpus import GPU
from shared.model.resources import VCORE
from shared.model.units import NANOS_PER_SECOND
from tools.replay.forecasts import forecast_figures
from tools.replay.run import NEVER_STARTED, Outcome, Run
from tools.replay.too_large import TOO_LARGE, rooms_of_racks

BOUND_NS = 10 * NANOS_PER_SECOND
PERCENTILES = (95, 99)
MAX_REASONS = 10  # reasons of jobs left out; the others are counted together
WIDE = 8  # GPUs, or processors, of one node
_UNITS = {GPU: ("GPUs", 1), VCORE: ("CPUs", 1000)}
Figures = dict[str, Any]


def figures_of(outcome: Outcome, cpu_seconds: float) -> Figures:
    """Return the figures of a replay as plain data."""
    name = outcome.trace.size_of
    unit, per = _UNITS.get(name, (name, 1))
    started = [run for run in outcome.runs if run.started_ns >= 0]
    refused = [run for run in outcome.runs if run.refused not in ("", TOO_LARGE)]
    until_ns = outcome.runs[-1].job.submitted_ns
    used, broken, waiting = (
        _mean(outcome.series.at_ns, values, until_ns)
        for values in (outcome.series.used, outcome.series.broken, outcome.series.waiting)
    )
    size = outcome.capacity or 1
    return {
        "trace": outcome.trace.name,
        "setup": outcome.setup.name,
        "nodes": len(outcome.setup.nodes),
        "capacity": outcome.capacity // per,
        "unit": unit,
        "jobs": len(outcome.runs),
        "started": len(started),
        "refused": len(refused),
        "refusedFor": refused[0].refused if refused else "",
        "neverStarted": len(outcome.runs) - len(started) - len(refused),
        "neverStartedFor": outcome.waits_for,
        "leftOut": _left_out(outcome),
        "evictions": outcome.evictions,
        "lostPercent": _lost_percent(outcome),
        "timedOut": outcome.timed_out,
        "decisions": outcome.decisions,
        "cpuSeconds": round(cpu_seconds, 2),
        "makespanSeconds": max((run.ended_ns for run in started), default=0) // NANOS_PER_SECOND,
        "utilisationPercent": round(100 * used / size, 2),
        "fragmentationPercent": round(100 * broken / size, 2),
        "heldIdlePercent": round(100 * outcome.held_idle / (size * until_ns or 1), 2),
        "meanWaiting": round(waiting, 1),
        "mostWaiting": max(outcome.series.waiting, default=0),
        "jainOfQueues": _jain(started, lambda run: run.job.queue),
        "jainOfUsers": _jain(started, lambda run: run.job.user),
        "utilisationByQueue": _by_queue(outcome, until_ns),
        "gangsOfOneRack": len(gangs := _gangs_of_one_rack(outcome, started)),
        "overSeveralRacks": sum(gangs),
        "forecasts": forecast_figures(outcome.forecasts),
        "all": _group(started),
        "bySize": _by_size(started, name, per),
        "byQueue": {
            queue: _group(run for run in started if run.job.queue == queue)
            for queue in sorted({run.job.queue for run in started})
        },
    }


def _gangs_of_one_rack(outcome: Outcome, started: list[Run]) -> list[bool]:
    """Return of each gang that an empty rack could hold whether its nodes are in several."""
    setup = outcome.setup
    rooms = rooms_of_racks(setup.nodes, setup.racks)
    rack_of = {node.name: node.labels.get(RACK_LABEL) for node in setup.nodes}
    return [
        len({rack_of[node] for node in run.nodes}) > 1
        for run in started
        if run.job.pods > 1 and any(room.could_hold(run.job) for room in rooms)
    ]


def _left_out(outcome: Outcome) -> Figures:
    """Return how many jobs did not run, by reason, those of lines that are no jobs too."""
    reasons = Counter(run.left_out for run in outcome.runs if run.left_out)
    found = {**outcome.trace.left_out, **dict(reasons.most_common(MAX_REASONS))}
    rest = reasons.total() - sum(count for _, count in reasons.most_common(MAX_REASONS))
    return {**found, "other reasons": rest} if rest else found


def left_out(found: Figures) -> list[str]:
    """Return how many jobs did not run and why, of the first of each kind."""
    lines = [
        f"{count:,} left out: {why}"
        for why, count in found["leftOut"].items()
        if why not in (NEVER_STARTED, found["refusedFor"])
    ]
    kinds = (
        (found["refused"], "refused", found["refusedFor"]),
        (found["neverStarted"], "never started", found["neverStartedFor"]),
    )
    return lines + [
        f"{count:,} {what}" + (f", the first: {why}" if why else "")
        for count, what, why in kinds
        if count
    ]


def _by_size(started: list[Run], name: str, per: int) -> dict[str, Figures]:
    """Return the figures by gang size: powers of two, and all that are over a node's."""
    sizes: dict[int, list[Run]] = {}
    for run in started:
        amount = -(-run.job.amount(name) // per)
        sizes.setdefault(1 << (amount - 1).bit_length() if amount else 0, []).append(run)
    found = {str(size): _group(sizes[size]) for size in sorted(sizes)}
    wide = [run for size, runs in sizes.items() if size > WIDE for run in runs]
    return {**found, f"over {WIDE}": _group(wide)} if wide else found


def _group(runs: Iterable[Run]) -> Figures:
    chosen = list(runs)
    if not chosen:
        return {"jobs": 0}
    waits = sorted(run.wait_ns for run in chosen)
    last = len(waits) - 1
    return {
        "jobs": len(chosen),
        "meanWaitSeconds": round(fmean(waits) / NANOS_PER_SECOND, 1),
        "medianWaitSeconds": round(median(waits) / NANOS_PER_SECOND, 1),
        **{
            f"p{percent}WaitSeconds": round(waits[last * percent // 100] / NANOS_PER_SECOND, 1)
            for percent in PERCENTILES
        },
        "longestWaitSeconds": round(waits[-1] / NANOS_PER_SECOND, 1),
        "boundedSlowdown": round(fmean(map(slowdown, chosen)), 3),
    }


def _jain(started: Iterable[Run], owner_of: Callable[[Run], str]) -> float | None:
    """Return Jain's index of owners' mean bounded slowdowns, None where no job started."""
    owned: dict[str, list[float]] = {}
    for run in started:
        owned.setdefault(owner_of(run), []).append(slowdown(run))
    if not owned:
        return None
    means = [fmean(each) for each in owned.values()]
    return round(sum(means) ** 2 / (len(means) * sum(mean * mean for mean in means)), 3)


def _lost_percent(outcome: Outcome) -> float:
    """Return which share of what ended jobs ran was lost by evictions, by their size."""
    name = outcome.trace.size_of
    ended = [run for run in outcome.runs if run.ended_ns >= 0]
    ran = sum((run.ended_ns - run.began_ns + run.before_ns) * run.job.amount(name) for run in ended)
    lost = sum(run.lost_ns * run.job.amount(name) for run in ended)
    return round(100 * lost / (ran or 1), 2)


def _by_queue(outcome: Outcome, until_ns: int) -> dict[str, float]:
    """Return how many per cent of the size each queue's jobs used, until the last submission."""
    name, whole = outcome.trace.size_of, outcome.capacity * until_ns
    used: dict[str, int] = {}
    for run in outcome.runs:
        if run.began_ns < 0:
            continue
        end_ns = min(run.ended_ns if run.ended_ns >= 0 else until_ns, until_ns)
        ran_ns = max(0, end_ns - run.began_ns) + run.before_ns
        used[run.job.queue] = used.get(run.job.queue, 0) + ran_ns * run.job.amount(name)
    return {queue: round(100 * used[queue] / (whole or 1), 2) for queue in sorted(used)}


def slowdown(run: Run) -> float:
    """Return a job's bounded slowdown."""
    return max(1.0, (run.wait_ns + run.job.run_ns) / max(run.job.run_ns, BOUND_NS))


def _mean(moments: Iterable[int], values: Iterable[int], until_ns: int) -> float:
    """Return the mean over time of what holds from each moment to the next."""
    total, before_ns, value = 0, 0, 0
    for at_ns, after in zip(moments, values, strict=True):
        here_ns = min(at_ns, until_ns)
        total += value * (here_ns - before_ns)
        before_ns, value = here_ns, after
    return total / until_ns if until_ns else float(value)

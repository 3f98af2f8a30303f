"""The schedule itself: ``make bench-schedule``, the rows of docs/schedule.md.

    make bench-schedule                              # every row, half an hour
    make bench-schedule ARGS="--only micro"          # rows whose name contains a word
    make bench-schedule ARGS="--small --only month"  # to their end, of a few jobs: figures of nothing

Each row is a replay in virtual time (docs/replay.md): the same on any machine, but for its CPU.
Traces of others are read from the folder of ``--traces``; rows of one that is not there say so.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean, pstdev
from time import process_time

from rich.console import Console
from rich.table import Table

from shared.model.gpus import GPU, WHOLE
from shared.model.units import NANOS_PER_SECOND
from shared.runtime.service import spare_the_collector
from tests.property import openb
from tests.property.easy_nodes import EasyOnNodes
from tests.property.gpu_month import gpu_month
from tests.property.lanes import Model
from tests.property.openb import ALL_DEVICES, not_allocated, openb_setup
from tests.property.rigid import Line, bounded_slowdown, drawn, repeated, starts_of
from tests.property.wide import micro_row
from tools.replay.command import measured
from tools.replay.figures import WIDE
from tools.replay.forecasts import forecast_line
from tools.replay.formats import read
from tools.replay.jobs import MAX_PODS, Job, Trace, in_order
from tools.replay.run import Replay
from tools.replay.setup import default_queues, setup_of


def _micro(settings: dict[str, str]) -> Callable[[Path], str]:
    def row(_: Path) -> str:
        rows = [micro_row(seed, settings) for seed in range(5)]
        waits = ", ".join("/".join(f"{wait:.0f}" for wait in found) for found, _ in rows)
        return (
            f"waits of 16/32 GPUs, s: {waits}; a queue loses {max(lost for _, lost in rows):.1f} %"
        )

    return row


def _philly(nodes: int, settings: dict[str, str]) -> Callable[[Path], str]:
    def row(traces: Path) -> str:
        file = traces / "philly" / "philly.csv.gz"
        if not file.exists():
            return f"{file} is not there"
        trace = read(file)
        found = measured(trace, setup_of(trace, "x", nodes=str(nodes), scheduler=settings))[1]
        sizes = found["bySize"]
        return (
            f"mean wait {found['all']['meanWaitSeconds']:,.0f} s; over 8 GPUs "
            f"{sizes['over 8']['meanWaitSeconds']:,.0f} s; of 8 "
            f"{sizes['8']['meanWaitSeconds']:,.0f} s; {found['cpuSeconds']:.0f} s of CPU"
        )

    return row


def _kth(settings: dict[str, str]) -> Callable[[Path], str]:
    def row(traces: Path) -> str:
        file = traces / "kth-sp2" / "kth-sp2-first-10000.swf.gz"
        if not file.exists():
            return f"{file} is not there"
        trace = read(file)
        found = measured(trace, setup_of(trace, "x", scheduler=settings))[1]
        return (
            f"mean wait {found['all']['meanWaitSeconds']:,.0f} s; bounded slowdown "
            f"{found['all']['boundedSlowdown']:.0f}; held idle {found['heldIdlePercent']} %; "
            f"{found['cpuSeconds']:.0f} s of CPU"
        )

    return row


def _forecasts(jobs: int, every: int, *firsts: int) -> Callable[[Path], str]:
    """Return how the forecasts of those who wait hold, wall times stated, in parts of the log."""

    def row(traces: Path) -> str:
        file = traces / "kth-sp2" / "kth-sp2-first-10000.swf.gz"
        if not file.exists():
            return f"{file} is not there"
        told, log = [], read(file)
        for first in firsts:
            trace = replace(log, jobs=in_order(list(log.jobs[first : first + jobs])))
            found = measured(trace, setup_of(trace, "x", scheduler=MUSTER), forecasts=every)[1]
            told.append(f"from job {first:,} on: {forecast_line(found['forecasts'])}")
        return "; ".join(told)

    return row


def _month_forecasts(jobs: int, every: int) -> Callable[[Path], str]:
    """Return the same of a GPU month, no run times stated."""

    def row(_: Path) -> str:
        trace = gpu_month(0).first(jobs)
        found = measured(trace, setup_of(trace, "x", scheduler=MUSTER), forecasts=every)[1]
        return forecast_line(found["forecasts"])

    return row


def _month(seeds: int, jobs: int) -> Callable[[Path], str]:
    """Compare the preset with no reservation and with EASY, on GPU months drawn by seed."""

    def row(_: Path) -> str:
        traces = [gpu_month(seed).first(jobs) for seed in range(seeds)]
        found = [
            [
                measured(trace, setup_of(trace, "x", scheduler=settings))[1]
                for settings in (MUSTER, GREEDY)
            ]
            for trace in traces
        ]
        easy = [EasyOnNodes(trace).run().longest_s for trace in traces]
        told = []
        for at, name in enumerate(("muster", "no reservation")):
            of_all = [pair[at]["all"]["meanWaitSeconds"] for pair in found]
            wide = [pair[at]["bySize"][f"over {WIDE}"]["meanWaitSeconds"] for pair in found]
            most = max(pair[at]["all"]["longestWaitSeconds"] for pair in found)
            times = [
                f"{pair[at]['all']['longestWaitSeconds'] / longest:.1f}"
                for pair, longest in zip(found, easy, strict=True)
            ]
            told.append(
                f"{name}: mean wait {fmean(of_all):,.0f} s, over {WIDE} GPUs {fmean(wide):,.0f} s, "
                f"the longest {most:,.0f} s, {', '.join(times)} times EASY's"
            )
        idle = fmean(pair[0]["heldIdlePercent"] for pair in found)
        return f"{'; '.join(told)}; held idle {idle:.2f} %; {seeds} seeds"

    return row


def _preempting(seeds: int, jobs: int, *costs: int) -> Callable[[Path], str]:
    """Compare attained service, at some costs of a preemption in s, with none, on single days.

    All jobs are in one queue: those of one queue preempt each other by their service. They ask for
    all that there is.
    """

    def row(_: Path) -> str:
        days = [gpu_month(seed, jobs=jobs, days=1, load=1.0) for seed in range(seeds)]
        traces = [_in_one_queue(day) for day in days]
        told = []
        for cost in (None, *costs):
            queues = default_queues(traces[0])
            if cost is not None:
                queues = queues.replace("properties:", f"properties:\n        {LEVELS}")
            found = [
                measured(
                    trace,
                    setup_of(trace, "x", queues=queues, scheduler=KAI, preemption_cost_s=cost),
                )[1]
                for trace in traces
            ]
            wide = fmean(each["bySize"][f"over {WIDE}"]["meanWaitSeconds"] for each in found)
            told.append(
                f"{'none' if cost is None else f'{cost} s'}: mean wait "
                f"{fmean(each['all']['meanWaitSeconds'] for each in found):,.0f} s, over {WIDE} "
                f"GPUs {wide:,.0f} s, bounded slowdown "
                f"{fmean(each['all']['boundedSlowdown'] for each in found):.1f}, lost "
                f"{fmean(each['lostPercent'] for each in found):.2f} %"
            )
        return f"{'; '.join(told)}; {seeds} seeds"

    return row


def _in_one_queue(trace: Trace) -> Trace:
    return replace(trace, jobs=tuple(replace(job, queue="all") for job in trace.jobs))


def _waiting(counts: tuple[int, ...]) -> Callable[[Path], str]:
    """Return what a gang costs that starts, by how many wait."""

    def row(_: Path) -> str:
        found = []
        for count in counts:
            random = Random(count)
            jobs = [
                Job(
                    f"gang-{at}",
                    at,
                    random.randint(60, 3_600) * NANOS_PER_SECOND,
                    "jobs",
                    "user",
                    ((random.randint(2, 8), {GPU: 8, "pods": 1}),),
                )
                for at in range(count)
            ]
            trace = Trace("waiting", in_order(jobs), GPU, 16, {GPU: 8, "pods": 110})
            cpu_s = measured(trace, setup_of(trace, "x", scheduler=MUSTER))[1]["cpuSeconds"]
            found.append(f"{count:,}: {1_000 * cpu_s / count:.2f}")
        return f"CPU ms a gang, of so many that wait at first: {', '.join(found)}"

    return row


LOADS, JOBS_A_PROCESSOR = (0.9, 1.1), 12.5
SHORTEST = {"backfill": "shortestFirst"}
Way = tuple[bool, dict[str, str]]  # whether wall times are stated, and settings
WAYS: dict[str, Way] = {
    "stated": (True, {}),
    "shortest first": (True, SHORTEST),
    "predictions alone": (False, {}),
}


def _log(
    make: Callable[[int, int, int, float], list[Line]], processors: int, seeds: int, *ways: str
) -> Callable[[Path], str]:
    """Compare EASY by stated wall times with other ways, on logs drawn by seed."""

    def row(_: Path) -> str:
        found = []
        for load in LOADS:
            jobs = int(JOBS_A_PROCESSOR * processors)
            logs = [make(seed, jobs, processors, load) for seed in range(seeds)]
            slowdowns = {
                name: [
                    bounded_slowdown(log, starts_of(log, processors, is_stated=stated, **settings))
                    for log in logs
                ]
                for name, (stated, settings) in WAYS.items()
                if name in ways
            }
            told = [_against(name, each, slowdowns["stated"]) for name, each in slowdowns.items()]
            found.append(f"load {load}: {', '.join(told)}")
        return f"average bounded slowdown; {'; '.join(found)}"

    return row


def _against(name: str, each: list[float], stated: list[float]) -> str:
    better = sum(one < other for one, other in zip(each, stated, strict=True))
    of_all = f" (better in {better} of {len(each)})" if each is not stated else ""
    return f"{name} {fmean(each):.1f} ± {pstdev(each):.1f}{of_all}"


def _lanes(wide: int, whole: int) -> Callable[[Path], str]:
    def row(traces: Path) -> str:
        file = traces / "philly" / "philly.csv.gz"
        if not file.exists():
            return f"{file} is not there"
        model = Model(read(file), 75, wide, whole).run()
        sizes = {"mean wait": range(1, MAX_PODS), "over 8 GPUs": range(9, MAX_PODS)}
        sizes |= {"of 8": range(8, 9), "of 1": range(1, 2)}
        return "; ".join(f"{name} {model.wait(sizes=of):,.0f} s" for name, of in sizes.items())

    return row


def _openb(mix: str, policy: str, seeds: int) -> Callable[[Path], str]:
    def row(traces: Path) -> str:
        folder = traces / "openb"
        file = folder / f"openb_pod_list_{mix}.csv.gz"
        if not file.exists():
            return f"{file} is not there"
        trace, setup = read(file), openb_setup(folder, policy)
        shares: list[float] = []
        decisions, began = 0, process_time()
        for seed in range(seeds):
            replay = Replay(openb.drawn(trace, seed, ALL_DEVICES), setup)
            decisions += replay.run().decisions
            shares.append(not_allocated(replay))
        return (
            f"{fmean(shares):.2f} ± {pstdev(shares):.2f} % of GPUs not allocated, {seeds} seeds; "
            f"{decisions / (process_time() - began):,.0f} decisions a CPU second"
        )

    return row


def _growth(policy: str) -> Callable[[Path], str]:
    def row(traces: Path) -> str:
        folder = traces / "openb"
        file = folder / "openb_pod_list_default.csv.gz"
        if not file.exists():
            return f"{file} is not there"
        trace, setup = read(file), openb_setup(folder, policy)
        found: list[str] = []
        for count in (300, 1_213, 5_000):
            nodes = tuple(
                replace(node, name=f"{node.name}-{copy}")
                for copy in range(-(-count // len(setup.nodes)))
                for node in setup.nodes
            )[:count]
            asked = 3_000 * WHOLE  # GPUs, on clusters that are full, half full and nearly empty
            replay = Replay(openb.drawn(trace, 0, asked), replace(setup, nodes=nodes))
            began = process_time()
            decisions = replay.run().decisions
            found.append(f"{count:,}: {1e6 * (process_time() - began) / decisions:.0f}")
        return f"CPU µs a decision on so many nodes: {', '.join(found)}"

    return row


MUSTER = {"preset": "muster"}
KAI = {**MUSTER, "policy": "kai", "consolidationVictims": "0"}  # a gang comes as another one
LEVELS = "attained.service.levels: 1h,10h"
GREEDY = {**MUSTER, "reservations": "none", "starvationGuard": "876000h"}
ROWS: dict[str, Callable[[Path], str]] = {
    "micro, muster": _micro(MUSTER),
    "micro, cluster without a lane": _micro({"gangAdmission": "cluster"}),
    "log drawn at random, 32 processors": _log(drawn, 32, 5, *WAYS),
    "log drawn at random, 64 processors": _log(drawn, 64, 5, "stated", "shortest first"),
    "log of people who repeat, 32 processors": _log(repeated, 32, 5, *WAYS),
    "log of people who repeat, 64 processors": _log(repeated, 64, 5, "stated", "shortest first"),
    "KTH-SP2, 10,000 jobs, muster": _kth(MUSTER),
    "KTH-SP2, forecasts": _forecasts(900, 7, 0, 2_000, 4_000, 6_000),
    "GPU month rich in gangs, muster": _month(5, 19_000),
    "GPU month rich in gangs, forecasts": _month_forecasts(3_000, 10),
    "GPU days rich in gangs, attained service": _preempting(3, 400, 60, 600),
    "gangs that wait, cost": _waiting((100, 400, 1_600)),
    "philly 75 nodes, muster": _philly(75, MUSTER),
    "philly 72 nodes, muster": _philly(72, MUSTER),
    "philly 75 nodes, muster, backfill": _philly(75, {**MUSTER, "backfill": "enabled"}),
    "philly 75 nodes, defaults": _philly(75, {}),
    "philly 72 nodes, muster, backfill": _philly(72, {**MUSTER, "backfill": "enabled"}),
    "philly model, one lane": _lanes(1, 0),
    "philly model, two lanes": _lanes(2, 0),
    "philly model, a lane for one node as well": _lanes(1, 1),
    "openb default, binpacking": _openb("default", "binpacking", 10),
    "openb default, gpu-binpacking": _openb("default", "gpu-binpacking", 10),
    "openb default, fgd": _openb("default", "fgd", 10),
    "openb cpu050, fgd": _openb("cpu050", "fgd", 5),
    "openb cpu250, fgd": _openb("cpu250", "fgd", 5),
    "openb multigpu20, fgd": _openb("multigpu20", "fgd", 5),
    "openb growth, binpacking": _growth("binpacking"),
    "openb growth, fgd": _growth("fgd"),
}

SMALL: dict[str, Callable[[Path], str]] = {
    "GPU month rich in gangs, muster": _month(1, 500),
    "GPU month rich in gangs, forecasts": _month_forecasts(300, 5),
    "GPU days rich in gangs, attained service": _preempting(1, 50, 60),
    "gangs that wait, cost": _waiting((10, 20)),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--traces", type=Path, default=Path("../shared/data/traces"))
    options = parser.parse_args()
    spare_the_collector()  # as the core does when it starts
    table = Table("row", "figures", box=None)
    for name, row in (ROWS | SMALL if options.small else ROWS).items():
        if not options.only or any(word in name for word in options.only):
            table.add_row(name, row(options.traces))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()

"""One run: a deployment in virtual time, users, faults, then rest, and the oracle's judgement.

Three acts: FAULTY_NS of users and faults; rest, in which nothing fails and everything is to come
to its end or wait for a reason; and the end, in which users delete everything.
"""

import asyncio
import gc
import time
from collections import Counter
from dataclasses import dataclass, field

from shared.messages.commands import DeleteApplication
from shared.model.units import NANOS_PER_SECOND, seconds
from tools.simulate import faults as kinds
from tools.simulate import oracle, workload
from tools.simulate.deployment import Deployment
from tools.simulate.faults import FAULTY_NS, Fault
from tools.simulate.loop import VirtualLoop
from tools.simulate.people import Users
from tools.simulate.timing import LOOK_SECONDS, Timing

ALONE_OF = 8  # one seed of so many is run without faults too, where the order is judged
REST_NS = seconds(75)  # the longest of: placeholder, completing and backoff timeouts, asking again
END_NS = seconds(60)
_QUIET_SECONDS = 60.0  # within which a system at rest has a moment at which nothing is on its way
_LOOK_SECONDS = 0.05


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    seed: int
    violations: list[str] = field(default_factory=list)
    digest: str = ""
    published: int = 0
    handled: int = 0
    virtual_ns: int = 0
    happened: Counter[str] = field(default_factory=Counter)  # faults by kind
    faults: list[Fault] = field(default_factory=list)  # that happened
    spent_ns: int = 0  # of CPU: the one figure that another run of the seed does not repeat
    partitions: int = 1
    racks: bool = False

    @property
    def holds(self) -> bool:
        """Return whether everything that must hold did."""
        return not self.violations


async def _until_quiet(deployment: Deployment) -> None:
    """Wait for a moment at which nothing is on its way."""
    until = deployment.loop.time() + _QUIET_SECONDS
    while not deployment.is_quiet():
        if deployment.loop.time() > until:
            busy = [f"{i.service}-{i.number}" for i in deployment.instances if not i.is_quiet]
            waiting = {n: len(b.waiting) for n, b in deployment.broker.inboxes.items() if b.waiting}
            deployment.report(f"it does not come to rest: busy {busy}, waiting {waiting}")
            return
        await asyncio.sleep(_LOOK_SECONDS)


async def _play(deployment: Deployment) -> None:
    loop = deployment.loop
    people = Users(deployment)
    for instance in deployment.instances:
        instance.start()
    loop.observe(Timing(deployment).check, LOOK_SECONDS)
    deployment.schedule_faults()
    deployment.note_mishaps()
    people.begin(deployment.work.acts)
    await asyncio.sleep(FAULTY_NS / NANOS_PER_SECOND - loop.time())
    deployment.calm()
    await asyncio.sleep(REST_NS / NANOS_PER_SECOND)
    await _until_quiet(deployment)
    deployment.violations += oracle.at_rest(deployment, people)
    world = deployment.shim.world if deployment.shim is not None else None
    if world is not None:
        left = [name for name, item in world.applications.items() if item.is_live]
        await asyncio.gather(*(people.ask(DeleteApplication(name)) for name in left))
        await asyncio.sleep(END_NS / NANOS_PER_SECOND)
        await _until_quiet(deployment)
        deployment.violations += oracle.at_the_end(deployment)
    loop.observe(None, LOOK_SECONDS)
    if not deployment.armed.is_drawn:
        deployment.violations += deployment.broker.order.violations()
    await people.end()
    for instance in deployment.instances:
        await instance.end()


def run(
    seed: int,
    only: set[int] | None = None,
    partitions: int | None = None,
    *,
    racks: bool | None = None,
) -> Outcome:
    """Run a seed with all of its faults, or only with those of some indices.

    It has so many ``partitions``, or as many as it draws, and ``racks`` or not, or as it draws.
    """
    started_ns = time.process_time_ns()
    gc.disable()
    try:
        faults = [f for f in kinds.drawn(seed) if only is None or f.index in only]
        partitions = partitions or workload.partitions_of(seed)
        racks = workload.has_racks(seed) if racks is None else racks
        outcome = run_with(seed, faults, partitions, racks=racks)
        if only is None and seed % ALONE_OF == 0 and outcome.holds:
            undisturbed = run_with(seed, [], partitions, racks=racks)
            outcome = outcome if undisturbed.holds else undisturbed
    finally:
        gc.enable()
        gc.collect(0)  # what the run leaves: while it ran, nothing grew old
    outcome.spent_ns = time.process_time_ns() - started_ns
    return outcome


def run_with(
    seed: int, faults: list[Fault], partitions: int = 1, *, racks: bool = False
) -> Outcome:
    """Run the workload of a seed with faults of one's own."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        deployment = Deployment(seed, loop, faults, partitions, racks=racks)
        loop.run_until_complete(_play(deployment))
        happened = [fault for _, fault in deployment.armed.happened]
        return Outcome(
            seed,
            deployment.violations,
            deployment.broker.digest(),
            deployment.broker.published,
            sum(instance.handled_total for instance in deployment.instances),
            loop.now_ns,
            Counter(fault.kind for fault in happened),
            happened,
            partitions=partitions,
            racks=racks,
        )
    finally:
        asyncio.set_event_loop(None)
        loop.close()

"""Run times of pods: stated ones, and predictions for pods that state none.

Rule 1: a pod ends at its run time after its allocation: its own stated one
        (``muster.io/run-seconds``, ``activeDeadlineSeconds``), or the execution timeout of itself
        or its application, the earliest of these.
Rule 2: without a stated time the prediction is the mean of the last two of the same queue, user and
        size; for a gang the size is the whole gang's (Tsafrir, Etsion, Feitelson 2007). Predictions
        are rounded up to a quarter of a power of two, so that there are few of them. If nodes are
        claimed for a gang, pods of a new kind are guessed by the last two of the same queue and
        user, else of the queue, else of all.
Rule 3: a pod that outlives its stated or predicted time ends at now + max(60 s, its age).
Rule 4: a forecast draws run times: one of the last KEPT of the kind that ran longer than the pod
        has. For a stated time it draws the used part of it, and never more than stated. Kinds with
        few runs are mixed with wider ones: n runs weigh n to PRIOR against the next wider kind, and
        the widest against the stated time. Half of a user's pods use the user's draw, because their
        errors are correlated.
Limit: MAX_KEYS kinds; the one whose last end is oldest is dropped.
"""

from bisect import bisect_right
from collections.abc import Mapping
from functools import lru_cache
from itertools import accumulate
from zlib import crc32

from services.core.scheduler.model.rows import Application
from shared.messages.interface import Allocation
from shared.model.names import RUN_SECONDS
from shared.model.numbers import parse_uint64
from shared.model.units import MAX_DURATION_NS, NANOS_PER_SECOND, milliseconds, seconds

MAX_KEYS = 10_000  # kinds of pods with remembered run times; the oldest is forgotten
LEAST_NS = seconds(60)
NEVER_NS = 2**62  # an unknown end
KEPT = 16  # run times remembered for each kind
PRIOR = 16  # so many run times of a kind weigh as much as all wider kinds
_WHOLE = 1_000_000  # unit of parts of a stated run time; drawn numbers are below it
STRATA = 15  # strata of the draws, in a different order for each pod
_STRIDES = (1, 2, 4, 7, 8, 11, 13, 14)  # coprime to STRATA
_MIXES = 0x9E3779B1  # an odd number that spreads a checksum over all its bits
Key = tuple[object, ...]
_Mixed = tuple[tuple[int, ...], tuple[int, ...]]  # sorted values, cumulative weights
_said = lru_cache(MAX_KEYS)(parse_uint64)  # parsed for every pod on a node whenever one ends


def stated_ns(
    application: Application, tags: Mapping[str, str], exec_timeout_ms: int, since_ns: int
) -> int:
    """Return a pod's stated run time in ns, from its allocation at ``since_ns``; 0: none."""
    said = _said(tags.get(RUN_SECONDS, "")) if tags else None
    own_ms = application.execution_timeout_ms
    ends = [seconds(said)] if said else []
    if exec_timeout_ms > 0:
        ends.append(milliseconds(exec_timeout_ms))
    if own_ms:
        own_since_ns = application.execution_start_ns or since_ns
        ends.append(own_since_ns + milliseconds(own_ms) - since_ns)
    return min((end for end in ends if end > 0), default=0) if ends else 0


class RunTimes:
    """The last run times of every kind, and the used parts of their stated times."""

    def __init__(self) -> None:
        self._last: dict[Key, tuple[tuple[str, int], ...]] = {}
        self._shares: dict[Key, tuple[tuple[str, int], ...]] = {}
        self._mixed: dict[tuple[bool, tuple[Key, ...]], _Mixed] = {}  # cache until the next end
        self._latest: tuple[Application, Mapping[str, int], int, int] | None = None
        self.learns = True  # False in a forecast

    def ended(
        self, application: Application, pod: Mapping[str, int], run_ns: int, stated: int = 0
    ) -> None:
        """Record an ended pod's run time in ns; for an application its longest counts.

        ``stated`` is its stated run time in ns; 0: none.
        """
        if not self.learns:
            return
        share = run_ns * _WHOLE // stated if stated else -1
        if self._latest is not None:  # the pods of a gang end one after another
            latest, size, longest_ns, largest = self._latest
            if application is latest and run_ns <= longest_ns and share <= largest and pod == size:
                return
        self._latest = (application, pod, run_ns, share)
        self._mixed.clear()
        keys = _keys(application, pod)
        _remember(self._last, keys, application.id, run_ns)
        if stated:
            _remember(self._shares, keys, application.id, share)

    def drawn_ns(
        self,
        application: Application,
        pod: Mapping[str, int],
        ran_ns: int,
        stated: int,
        chance: int,
    ) -> int:
        """Draw the run time in ns of a pod that has run for ``ran_ns``; 0: unknown.

        ``chance`` is in [0, 1 million) and determines the result. If no recorded pod ran longer,
        the pod is drawn to run as long again, at the median.
        """
        keys, unit = _keys(application, pod), stated or _WHOLE
        mixed = self._mixed.get((bool(stated), keys))
        if mixed is None:
            if len(self._mixed) >= MAX_KEYS:
                self._mixed.clear()
            mixed = _mixture(self._shares if stated else self._last, keys, is_share=bool(stated))
            self._mixed[bool(stated), keys] = mixed
        values, weights = mixed
        if len(values) <= bool(stated):  # no pod of any kind has run
            return stated
        first = bisect_right(values, ran_ns * _WHOLE // unit)
        before = weights[first - 1] if first else 0
        if first < len(values):
            at = before + chance * (weights[-1] - before) // _WHOLE
            drawn = values[bisect_right(weights, at)] * unit // _WHOLE
        else:
            drawn = max(ran_ns, LEAST_NS) * _WHOLE // (_WHOLE - chance)
        return min(drawn, stated) if stated > ran_ns else drawn

    def predicted_ns(self, application: Application, pod: Mapping[str, int]) -> int:
        """Return a pod's run time in ns predicted from its own kind; 0: unknown."""
        return self._mean_ns(_keys(application, pod)[0])

    def guessed_ns(self, application: Application, pod: Mapping[str, int]) -> int:
        """Return the same from the narrowest known kind; 0: no pod has run."""
        return next(filter(None, map(self._mean_ns, _keys(application, pod))), 0)

    def _mean_ns(self, key: Key) -> int:
        last = self._last.get(key, ())[-2:]
        return _rounded_up(sum(run for _, run in last) // len(last)) if last else 0


def _remember(
    table: dict[Key, tuple[tuple[str, int], ...]], keys: tuple[Key, ...], name: str, value: int
) -> None:
    for key in keys:
        last = table.pop(key, ())
        if not last or last[-1][0] != name:
            if len(table) >= MAX_KEYS:
                del table[next(iter(table))]
            last = (*last[1 - KEPT :], (name, value))
        elif last[-1][1] < value:
            last = (*last[:-1], (name, value))
        table[key] = last


def _mixture(
    table: Mapping[Key, tuple[tuple[str, int], ...]], keys: tuple[Key, ...], *, is_share: bool
) -> _Mixed:
    """Return the weighed run times of all kinds (rule 4); for parts, with the whole."""
    found: list[tuple[int, int]] = []
    left = _WHOLE * _WHOLE
    for key in keys:
        last = table.get(key, ())
        if last:
            weight = left // (len(last) + PRIOR)
            found += [(value, weight) for _, value in last]
            left -= weight * len(last)
    if is_share:
        found.append((_WHOLE, left))
    found.sort()
    return tuple(value for value, _ in found), tuple(accumulate(weight for _, weight in found))


def chance_of(application: Application, key: str, draw: int) -> int:
    """Return a pod's number in [0, 1 million) for a draw; deterministic.

    The pods of a gang have the same; half of a user's applications have the user's (rule 4). STRATA
    consecutive draws fall into different strata (a Latin hypercube).
    """
    name = application.id if application.is_gang else key
    mixed = _mixed_bits(name)
    if mixed & 1:
        name = f"{application.queue.path}/{application.request.ugi.user}"
        mixed = _mixed_bits(name)
    stride = _STRIDES[(mixed >> 1) % len(_STRIDES)]
    stratum = ((mixed >> 8) + stride * draw) % STRATA
    within = _mixed_bits(f"{draw}/{name}") * _WHOLE // 2**32
    return (stratum * _WHOLE + within) // STRATA


def _mixed_bits(name: str) -> int:
    return crc32(name.encode()) * _MIXES % 2**32


def _keys(application: Application, pod: Mapping[str, int]) -> tuple[Key, ...]:
    """Return a pod's kinds, narrowest first."""
    size = application.request.placeholder_ask or pod
    path, user = application.queue.path, application.request.ugi.user
    return (path, user, tuple(sorted(size.items()))), (path, user), (path,), ()


def _rounded_up(run_ns: int) -> int:
    whole = max(1, -(-min(run_ns, MAX_DURATION_NS) // NANOS_PER_SECOND))
    step = max(1, (1 << (whole.bit_length() - 1)) // 4)
    return seconds(-(-whole // step) * step)


def end_ns(
    times: RunTimes,
    application: Application,
    allocation: Allocation,
    now_ns: int,
    *,
    guesses: bool = False,
) -> int:
    """Return an allocation's expected end, after now; NEVER_NS: unknown.

    With ``guesses`` wider kinds are used too.
    """
    since_ns = application.placed_ns.get(allocation.allocation_key, now_ns)
    predicted = times.guessed_ns if guesses else times.predicted_ns
    run_ns = stated_ns(
        application, allocation.allocation_tags, allocation.exec_timeout_milli_seconds, since_ns
    ) or predicted(application, allocation.resource_per_alloc)
    if not run_ns:
        return NEVER_NS
    if since_ns + run_ns <= now_ns:
        return now_ns + max(LEAST_NS, now_ns - since_ns)
    return since_ns + run_ns

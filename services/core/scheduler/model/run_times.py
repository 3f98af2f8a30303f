"""For how long pods run: what they state, and what is predicted of those that state nothing.

Rule 1: a pod ends when its time is up, counted from when it was placed: what it states itself
        (``muster.io/run-seconds``, ``activeDeadlineSeconds``), or its own or its application's
        execution timeout, the first of these.
Rule 2: what states nothing is predicted to run for the mean of the last two of the same queue, user
        and size: of a gang the size is all of it (Tsafrir, Etsion, Feitelson 2007). Predictions are
        rounded up to a quarter of a power of two, so that there are few of them.
        Where nodes are held for a gang, what is of a kind that nobody has run yet is guessed: as
        the last two of the same queue and user, else of the queue, else of all.
Rule 3: what has outlived what was stated or predicted ends at now + max(60 s, its age).
Limit: MAX_KEYS kinds are remembered; of more, the one that ended longest ago is forgotten.
"""

from collections.abc import Mapping

from services.core.scheduler.model.rows import Application
from shared.messages.interface import Allocation
from shared.model.names import RUN_SECONDS
from shared.model.numbers import parse_uint64
from shared.model.units import MAX_DURATION_NS, NANOS_PER_SECOND, milliseconds, seconds

MAX_KEYS = 10_000  # kinds of pods of which run times are remembered; the oldest is forgotten
LEAST_NS = seconds(60)
NEVER_NS = 2**62  # an end of which nothing is known
Key = tuple[object, ...]


def stated_ns(
    application: Application, tags: Mapping[str, str], exec_timeout_ms: int, since_ns: int
) -> int:
    """Return for how long a pod that was, or would be, placed at a moment runs; 0: not said."""
    said = parse_uint64(tags.get(RUN_SECONDS, ""))
    own_ms = application.execution_timeout_ms
    own_since_ns = application.execution_start_ns or since_ns
    ends = (
        seconds(said) if said else 0,
        milliseconds(exec_timeout_ms) if exec_timeout_ms > 0 else 0,
        own_since_ns + milliseconds(own_ms) - since_ns if own_ms else 0,
    )
    return min((end for end in ends if end > 0), default=0)


class RunTimes:
    """How long the last two of every kind ran."""

    def __init__(self) -> None:
        self._last: dict[Key, tuple[tuple[str, int], ...]] = {}

    def ended(self, application: Application, pod: Mapping[str, int], run_ns: int) -> None:
        """Take in that a pod has run to its end; of one application its longest counts."""
        for key in _keys(application, pod):
            self._remember(key, application.id, run_ns)

    def _remember(self, key: Key, name: str, run_ns: int) -> None:
        last = self._last.pop(key, ())
        if last and last[-1][0] == name:
            last, run_ns = last[:-1], max(run_ns, last[-1][1])
        elif len(self._last) >= MAX_KEYS:
            del self._last[next(iter(self._last))]
        self._last[key] = (*last[-1:], (name, run_ns))

    def predicted_ns(self, application: Application, pod: Mapping[str, int]) -> int:
        """Return for how long a pod would run, by what is known of others; 0: nothing is."""
        return self._mean_ns(_keys(application, pod)[0])

    def guessed_ns(self, application: Application, pod: Mapping[str, int]) -> int:
        """Return the same, or what is known of others the most like it; 0: nobody has run."""
        return next(filter(None, map(self._mean_ns, _keys(application, pod))), 0)

    def _mean_ns(self, key: Key) -> int:
        last = self._last.get(key, ())
        return _rounded_up(sum(run for _, run in last) // len(last)) if last else 0


def _keys(application: Application, pod: Mapping[str, int]) -> tuple[Key, ...]:
    """Return the kinds that a pod is of, the narrowest first."""
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
    """Return when an allocation is expected to end, after now; NEVER_NS: nothing is known.

    With ``guesses`` little is not known: the last of the queue, or of all, are looked at too.
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

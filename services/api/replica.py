"""Shared by all routes: the replica that answers, and reading request bodies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Query, Request

from services.api.machine import (
    ApiMachine,
    NoAnswerError,
    TooManyRequestsError,
    UnsendableError,
)
from services.api.projection import Projections
from services.api.projection.model import Model
from services.api.web.answers import AnswerError
from services.api.web.documents import MAX_BODY_BYTES
from shared.bus.blocked import blocked_seconds
from shared.model.names import DEFAULT_PARTITION
from shared.model.units import NANOS_PER_SECOND
from shared.runtime.beats import silence_ns
from shared.runtime.host import Host

# What read_body reads, as the OpenAPI document says it of a route that takes YAML.
YAML_BODY: dict[str, Any] = {"requestBody": {"content": {"application/yaml": {}}, "required": True}}

PartitionQuery = Annotated[str, Query(description="A partition's name; without it all are meant")]
OnePartition = Annotated[str, Query(description="A partition's name")]


BROKER = "broker"
_SHORT = "it is short of memory or disk, and nothing is decided until it has some again"


@dataclass(frozen=True, slots=True)
class Away:
    """A part that does not work: its service or ``broker``, a sentence, and since when."""

    part: str
    sentence: str
    since_ns: int


class Replica:
    """The API replica that answers: its machine and host, which may be replaced.

    ``beats``: instances report that they are at work; otherwise that is unknown.
    """

    def __init__(
        self,
        host_of: Callable[[], Host],
        machine_of: Callable[[], ApiMachine],
        *,
        beats: bool = False,
    ) -> None:
        self._host_of = host_of
        self._machine_of = machine_of
        self._beats = beats
        self._last: Projections | None = None  # that had a state

    def away(self) -> list[Away]:
        """Return the parts that do not work, the broker first; [] if all work.

        Readiness, the healthcheck, metrics, the page and commands use it.
        """
        if not self._beats:
            return []
        now_ns, since_ns = self.host.now_ns, self.host.away_since_ns
        if since_ns:
            said = f"the broker has been away for {_seconds(now_ns - since_ns)}"
            return [Away(BROKER, said, since_ns)]
        return [*_blocked(now_ns), *self._silent(now_ns)]

    def _silent(self, now_ns: int) -> list[Away]:
        partitions, host = self.machine.partitions, self.host
        silent = partitions.works.silent(
            partitions.names, host.connected_ns, now_ns, silence_ns(host.heartbeat_ns)
        )
        return [Away(item.service, item.sentence(now_ns), item.since_ns) for item in silent]

    def works(self) -> dict[tuple[str, str], bool]:
        """Return by service and partition whether it is at work; {} if that is unknown."""
        if not self._beats:
            return {}
        host, partitions = self.host, self.machine.partitions
        found = partitions.works.at_work(
            partitions.names, host.now_ns, silence_ns(host.heartbeat_ns)
        )
        return {key: works and not host.away_since_ns for key, works in found.items()}

    def age_seconds(self, away: Sequence[Away]) -> int:
        """Return the maximum age of the shown state in seconds; 0 while all parts work."""
        now_ns = self.host.now_ns
        return (now_ns - min((item.since_ns for item in away), default=now_ns)) // NANOS_PER_SECOND

    @property
    def is_serving(self) -> bool:
        """Whether there is a state to show, even an old one."""
        return bool(self.partitions.models)

    @property
    def models(self) -> list[Model]:
        """The read models with a state. Raises AnswerError 503 if there is none."""
        self._need_state()
        return self.partitions.models

    def _need_state(self) -> None:
        if not self.is_serving:
            raise _no_state(DEFAULT_PARTITION)

    def model(self, partition: str = DEFAULT_PARTITION) -> Model:
        """Return a partition's read model. Raises AnswerError 404, and 503 while it has none."""
        self._need_state()
        projection = self.partitions.get(partition)
        if projection is None:
            raise AnswerError(404, "Partition not found")
        if projection.model.partition is None:
            raise _no_state(projection.partition)
        return projection.model

    def chosen(self, partition: str) -> list[Model]:
        """Return the models for an answer: a partition's, or with "" all of them."""
        return [self.model(partition)] if partition else self.models

    def the_one(self, partition: str, name: str, standing: Callable[[Model], int]) -> Model | None:
        """Return the model in which a name ranks highest; None if no model has it (0).

        Raises AnswerError 400 if it ranks equally in several.
        """
        found = [(standing(model), model) for model in self.chosen(partition)]
        highest = max(rank for rank, _ in found)
        best = [model for rank, model in found if rank == highest]
        if highest == 0:
            return None
        if len(best) > 1:
            names = ", ".join(model.name for model in best)
            raise AnswerError(400, f"{name} is in several partitions, {names}: say ?partition=")
        return best[0]

    def of_application(self, application: str, partition: str) -> Model | None:
        """Return the model of an application, as ``the_one`` does; live ones precede ended ones."""
        return self.the_one(partition, application, lambda model: model.standing(application))

    @property
    def partitions(self) -> Projections:
        """The projections of all partitions, or the previous ones until there are new ones.

        A replica whose connection was lost starts over. For each partition, the previous state is
        shown, with its age, until its core has sent a snapshot.
        """
        partitions = self._machine_of().partitions
        if self._last is None or (partitions is not self._last and partitions.models):
            if self._last is not None:
                partitions.stand_in(self._last)
            self._last = partitions
        return self._last

    def follows(self, partition: str) -> bool:
        """Whether a partition follows its core now; the shown state may be a previous one."""
        return self.machine.partitions.follows(partition)

    @property
    def machine(self) -> ApiMachine:
        """The current machine."""
        return self._machine_of()

    @property
    def host(self) -> Host:
        """The current host."""
        return self._host_of()

    async def ask(
        self, message: object, request: Request, partition: str = DEFAULT_PARTITION
    ) -> object:
        """Send a command and return its answer. Raises AnswerError 400, 503 or 504."""
        away = self.away()
        if away and away[0].part == BROKER:
            raise AnswerError(503, f"{away[0].sentence}: nothing was handed in; try again")
        traceparent = request.headers.get("traceparent", "")
        try:
            return await self.machine.ask(self._host_of(), message, traceparent, partition)
        except NoAnswerError as error:
            meanwhile = "; ".join(item.sentence for item in self.away())
            said = f"{error} ({meanwhile})" if meanwhile else str(error)
            raise AnswerError(504, said) from error
        except UnsendableError as error:
            raise AnswerError(400, str(error)) from error
        except TooManyRequestsError as error:
            raise AnswerError(503, str(error)) from error


def _blocked(now_ns: int) -> list[Away]:
    """Return that the broker blocks publishing, which explains other silent parts."""
    seconds = blocked_seconds()
    if seconds is None:
        return []
    blocked_ns = round(seconds * NANOS_PER_SECOND)
    said = f"the broker has accepted nothing for {_seconds(blocked_ns)}: {_SHORT}"
    return [Away(BROKER, said, now_ns - blocked_ns)]


def _seconds(nanoseconds: int) -> str:
    return f"{max(0, nanoseconds) // NANOS_PER_SECOND} s"


def _no_state(partition: str) -> AnswerError:
    return AnswerError(503, f"no state yet: waiting for a snapshot from {whose_core(partition)}")


def whose_core(partition: str) -> str:
    """Return how sentences call a partition's core."""
    return "the core" if partition == DEFAULT_PARTITION else f"the core of partition {partition}"


async def read_body(request: Request) -> bytes:
    """Read a body, and stop as soon as it is too large."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise AnswerError(
                413, f"the body is larger than {MAX_BODY_BYTES} bytes: split the file"
            )
        parts.append(part)
    return b"".join(parts)

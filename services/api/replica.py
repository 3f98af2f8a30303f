"""What the routes share: the replica that answers, and reading a body."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Query, Request

from services.api.answers import AnswerError
from services.api.documents import MAX_BODY_BYTES
from services.api.machine import (
    ApiMachine,
    NoAnswerError,
    TooManyRequestsError,
    UnsendableError,
)
from services.api.projection import Projections
from services.api.projection.model import Model
from shared.model.names import DEFAULT_PARTITION
from shared.runtime.host import Host

# What read_body reads, as the OpenAPI document says it of a route that takes YAML.
YAML_BODY: dict[str, Any] = {"requestBody": {"content": {"application/yaml": {}}, "required": True}}

PartitionQuery = Annotated[str, Query(description="A partition's name; without it all are meant")]
OnePartition = Annotated[str, Query(description="A partition's name")]


class Replica:
    """The API replica that answers: its machine and host, which may be renewed under it."""

    def __init__(self, host_of: Callable[[], Host], machine_of: Callable[[], ApiMachine]) -> None:
        self._host_of = host_of
        self._machine_of = machine_of

    @property
    def models(self) -> list[Model]:
        """Return the read models that there are. Raises AnswerError 503 while there is none."""
        self._need_state()
        return self.partitions.models

    def _need_state(self) -> None:
        if not self.partitions.models:
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
        """Return the models that an answer is made of: a partition's, or with "" all of them."""
        return [self.model(partition)] if partition else self.models

    def the_one(self, partition: str, name: str, standing: Callable[[Model], int]) -> Model | None:
        """Return the model in which a name stands highest; None where none knows it (0).

        Raises AnswerError 400 where it stands alike in several.
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
        """Return the model of an application, as ``the_one`` does: a live one before ended ones."""
        return self.the_one(partition, application, lambda model: model.standing(application))

    @property
    def partitions(self) -> Projections:
        """Return the projections of all partitions."""
        return self._machine_of().partitions

    @property
    def machine(self) -> ApiMachine:
        """Return the machine."""
        return self._machine_of()

    @property
    def host(self) -> Host:
        """Return the host."""
        return self._host_of()

    async def ask(
        self, message: object, request: Request, partition: str = DEFAULT_PARTITION
    ) -> object:
        """Send a command and return its answer. Raises AnswerError 400, 503 or 504."""
        traceparent = request.headers.get("traceparent", "")
        try:
            return await self.machine.ask(self._host_of(), message, traceparent, partition)
        except NoAnswerError as error:
            raise AnswerError(504, str(error)) from error
        except UnsendableError as error:
            raise AnswerError(400, str(error)) from error
        except TooManyRequestsError as error:
            raise AnswerError(503, str(error)) from error


def _no_state(partition: str) -> AnswerError:
    return AnswerError(503, f"no state yet: waiting for a snapshot from {whose_core(partition)}")


def whose_core(partition: str) -> str:
    """Return how people are told of a partition's core."""
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

"""What the routes share: the replica that answers, and reading a body."""

from collections.abc import Callable
from typing import Any

from fastapi import Request

from services.api.answers import AnswerError
from services.api.documents import MAX_BODY_BYTES
from services.api.machine import (
    ApiMachine,
    NoAnswerError,
    TooManyRequestsError,
    UnsendableError,
)
from services.api.projection.model import Model
from shared.runtime.host import Host

# What read_body reads, as the OpenAPI document says it of a route that takes YAML.
YAML_BODY: dict[str, Any] = {"requestBody": {"content": {"application/yaml": {}}, "required": True}}


class Replica:
    """The API replica that answers: its machine and host, which may be renewed under it."""

    def __init__(self, host_of: Callable[[], Host], machine_of: Callable[[], ApiMachine]) -> None:
        self._host_of = host_of
        self._machine_of = machine_of

    @property
    def model(self) -> Model:
        """Return the read model. Raises AnswerError 503 while there is none."""
        projection = self._machine_of().projection
        if projection.model.partition is None:
            raise AnswerError(503, "no state yet: waiting for a snapshot from the core")
        return projection.model

    @property
    def machine(self) -> ApiMachine:
        """Return the machine."""
        return self._machine_of()

    @property
    def host(self) -> Host:
        """Return the host."""
        return self._host_of()

    async def ask(self, message: object, request: Request) -> object:
        """Send a command and return its answer. Raises AnswerError 400, 503 or 504."""
        traceparent = request.headers.get("traceparent", "")
        try:
            return await self.machine.ask(self._host_of(), message, traceparent)
        except NoAnswerError as error:
            raise AnswerError(504, str(error)) from error
        except UnsendableError as error:
            raise AnswerError(400, str(error)) from error
        except TooManyRequestsError as error:
            raise AnswerError(503, str(error)) from error


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

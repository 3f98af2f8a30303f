"""Users of the API: they send requests, wait for answers, and retry where that is safe."""

import asyncio
import json
from collections.abc import Sequence

from services.api.machine import NoAnswerError
from shared.messages.commands import (
    DeleteApplication,
    DeletePods,
    SubmitManifests,
    SubmitPods,
)
from shared.model.units import NANOS_PER_SECOND
from tools.simulate.deployment import Deployment
from tools.simulate.workload import Act

_AGAIN_SECONDS = 1.0
_MOST_TRIES = 30  # attempts to find an API, a second apart; then the user gives up


class Users:
    """The users in a run."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._tasks: list[asyncio.Task[object]] = []
        self.submitted: dict[tuple[str, str], int] = {}  # how often a pod's name was sent in
        self.answered: dict[str, list[object]] = {}  # what manifests with a key were answered
        self.deleted: dict[str, None] = {}  # applications and pods that they wanted gone, by name

    def begin(self, acts: Sequence[Act]) -> None:
        """Schedule the users' actions."""
        loop = self._deployment.loop
        self._tasks = [loop.create_task(self._do(act)) for act in acts]

    async def _do(self, act: Act) -> None:
        loop = self._deployment.loop
        await asyncio.sleep(max(0.0, act.at_ns / NANOS_PER_SECOND - loop.time()))
        answer = await self.ask(act.message)
        if answer is None and act.again:
            await self.ask(act.message)

    async def ask(self, message: object) -> object:
        """Send a request to an API replica; return the answer, or None if none arrived."""
        if isinstance(message, SubmitPods):
            for pod in message.pods:
                name = (pod.namespace, pod.name)
                self.submitted[name] = self.submitted.get(name, 0) + 1
        elif isinstance(message, SubmitManifests):
            for document in message.documents:  # once, however often
                self.submitted["default", json.loads(document.body)["metadata"]["name"]] = 1
            answer = await self._send(message)
            self.answered.setdefault(message.idempotency_key, []).append(answer)
            return answer
        elif isinstance(message, DeleteApplication):
            self.deleted[message.application_id] = None
        elif isinstance(message, DeletePods):
            self.deleted |= dict.fromkeys(pod.name for pod in message.pods)
        return await self._send(message)

    async def _send(self, message: object) -> object:
        for _ in range(_MOST_TRIES):
            instance = self._deployment.of("api")[0]
            host, api = instance.host, self._deployment.api
            if host is not None and api is not None and host.is_connected:
                try:
                    return await api.ask(host, message)
                except NoAnswerError:
                    return None
            await asyncio.sleep(_AGAIN_SECONDS)
        return None

    async def end(self) -> None:
        """Have nobody ask any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

"""A core and a replica of the API that follows it, without a bus between them."""

import re
from typing import cast

import httpx
from fastapi import FastAPI

from services.api.machine import ApiMachine
from services.api.replica import Replica
from services.api.web.answers import encoded
from services.api.yunikorn.answers import application_info, node_info
from services.api.yunikorn.metrics import yunikorn_metrics
from services.api.yunikorn.rows import application_row, node_row
from shared.bus.base import ANY_LETTER, DeadLetters, Wanted
from shared.messages.envelope import API_ALL, Envelope
from shared.messages.state import StateDelta
from shared.runtime.host import Host
from tests.apps import app_of
from tests.builders import Core


class System(Core):
    """A core whose state events a replica follows, and the HTTP answers of that replica."""

    has_clock = False  # whether the replica hears of things when they are, not all at once

    def __init__(self, config: str = "", machine: ApiMachine | None = None, **more) -> None:
        self.machine = machine or ApiMachine("one")
        self._app: FastAPI | None = None
        super().__init__(config, **more)

    def send(self, message, *, epoch=None):
        before = len(self.answers)
        responses = super().send(message, epoch=epoch)
        for item in self.answers[before:]:
            if isinstance(item.message, StateDelta):
                name = type(item.message).__name__
                envelope = Envelope(
                    "e", name, item.message, API_ALL, "core", epoch=item.epoch, seq=item.seq,
                    partition=self.scheduler.name,
                )  # fmt: skip
                assert not self.machine.handle(envelope, self.now_ns if self.has_clock else 1)
        self.check_rows()
        return responses

    def check_rows(self) -> None:
        """Every row that is kept is what it would be if it were written now."""
        for node in self.model.nodes.values():
            assert node_row(node) == encoded(node_info(node))
        for view in (*self.model.applications.values(), *self.model.ended.values()):
            assert application_row(self.model, view) == encoded(application_info(self.model, view))

    @property
    def projection(self):
        return self.machine.partitions.get(self.scheduler.name)

    @projection.setter
    def projection(self, projection):
        self.machine.partitions._of["default"] = projection

    @property
    def model(self):
        return self.projection.model

    def metrics(self) -> str:
        return yunikorn_metrics([self.model], self.model.events).decode()

    def metric(self, text: str) -> float:
        found = re.search(rf"^{re.escape(text)} (\S+)$", self.metrics(), re.MULTILINE)
        assert found, text
        return float(found.group(1))

    def answer_with(self, app: FastAPI) -> None:
        """Have another app answer: of a replica whose host is there."""
        self._app = app

    async def get(self, path: str, **headers: str) -> httpx.Response:
        """Return what the replica answers."""
        if self._app is not None:
            return await _asked(self._app, path, headers)
        with app_of(Replica(_no_host, lambda: self.machine)) as app:
            return await _asked(app, path, headers)


async def _asked(app: FastAPI, path: str, headers: dict[str, str]) -> httpx.Response:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://muster") as client:
        return await client.get(path, headers=headers)


class _NoHost:
    """A host that only looks at what was put aside: an answer that only reads asks no service."""

    now_ns = 0  # its clock stands still

    async def dead_letters(self, most: int, wanted: Wanted = ANY_LETTER) -> DeadLetters:
        return DeadLetters((), 0)


def _no_host() -> Host:
    return cast(Host, _NoHost())

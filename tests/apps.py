"""Web applications for the tests, which have each other's again: sixty routes take long to make."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from fastapi import FastAPI

from services.api.replica import Replica
from services.api.routes.app import make_app


class _Present:
    """Stands for a replica in an application that was made for another one."""

    def __init__(self) -> None:
        self.replica: Replica | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.replica, name)


_free: list[tuple[FastAPI, _Present]] = []  # those that nobody uses now


@contextmanager
def app_of(replica: Replica) -> Iterator[FastAPI]:
    """Give the application of a replica that asks nobody who they are, for as long as it is used."""
    if not _free:
        present = _Present()
        _free.append((make_app(cast(Replica, present)), present))
    app, present = _free.pop()
    present.replica = replica
    try:
        yield app
    finally:
        present.replica = None
        _free.append((app, present))

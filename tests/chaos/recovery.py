"""How long it takes from now until all works again: until what is submitted now has run."""

import time
from http import HTTPStatus

import httpx

from tests.chaos.cluster import Cluster
from tests.chaos.load import Load, submitted

RECOVERED_SECONDS = 300.0  # far more than it takes: what has not run by then does not


def recovered(cluster: Cluster, load: Load, name: str) -> float | None:
    """Return how long it takes until an application has run, at every API; None: it does not."""
    item = submitted(name, 1, 1)
    load.applications.append(item)
    start = time.monotonic()
    load.client(item)
    waited = cluster.until(lambda: _has_run(cluster, name), RECOVERED_SECONDS)
    return None if waited is None else time.monotonic() - start


def _has_run(cluster: Cluster, name: str) -> bool:
    """Return whether every API answers, and says that an application has run, or knows no more of it.

    One that was started since has nothing of what had ended by then (docs/operations.md).
    """
    states = [_state(cluster, api, name) for api in cluster.apis]
    return any(states) and all(state in ("", "Completing", "Completed") for state in states)


def _state(cluster: Cluster, api: str, name: str) -> str | None:
    """Return the state of an application as an API tells it, "" unknown; None: no answer."""
    try:
        return str(cluster.ask(api, f"/v1/applications/{name}")["state"])
    except httpx.HTTPStatusError as error:
        return "" if error.response.status_code == HTTPStatus.NOT_FOUND else None
    except (httpx.HTTPError, ValueError):
        return None

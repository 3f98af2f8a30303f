"""Gangs and plain applications all the time, some deleted, some sent again with their key.

A client that hears no answer sends the same again with the same Idempotency-Key, to any replica,
until it is answered: what it wanted is done once, whatever happens meanwhile.
"""

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx

from tests.chaos.cluster import Cluster
from tests.integration.processes import HTTP
from tests.jobs import job

CLIENTS = 8
PAUSE_SECONDS = 0.4  # before what was not answered is sent again
TIMEOUT_SECONDS = 20.0
PATIENCE_SECONDS = 120.0  # with those who were not answered when the faults end

_NOWHERE = {"there-is-no-such-node": "true"}


@dataclass(slots=True)
class Submitted:
    """An application that somebody wanted, and what came of it as far as the client knows."""

    name: str
    pods: int
    manifest: str
    fits_nowhere: bool = False
    is_accepted: bool = False
    is_deleted: bool = False  # its deletion was answered


def submitted(
    name: str, pods: int, run_seconds: int, *, is_gang: bool = False, fits_nowhere: bool = False
) -> Submitted:
    text = job(
        name,
        pods,
        gang=pods if is_gang else 0,
        cpu="1",
        memory="1Gi",
        run_seconds=run_seconds,
        selector=_NOWHERE if fits_nowhere else None,
    )
    return Submitted(name, pods, text, fits_nowhere)


@dataclass
class Load:
    """What clients do, from a seed; ``wrong`` is what they were told that cannot be."""

    cluster: Cluster
    seed: int
    rate: float  # applications a second
    factor: int = 1  # of the pods of each
    clients: int = CLIENTS  # at once
    applications: list[Submitted] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(f"load/{self.seed}")
        self._is_over = threading.Event()
        self._given_up_at = float("inf")
        self._clients = ThreadPoolExecutor(self.clients)
        self._thread = threading.Thread(target=self._run, name="load")

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Begin nothing new, and wait until every client was answered."""
        self._is_over.set()
        self._given_up_at = time.monotonic() + PATIENCE_SECONDS
        self._thread.join()
        self._clients.shutdown(wait=True)

    def _run(self) -> None:
        while not self._is_over.wait(self._random.expovariate(self.rate)):
            self._clients.submit(self._guarded, *self._next())

    def _next(self) -> tuple[Submitted, float, bool]:
        number, draw = len(self.applications), self._random.random()
        if number == 3 or draw < 0.01:
            item = submitted(f"nowhere-{number}", 2, 1, fits_nowhere=True)
        else:
            is_gang = draw < 0.6
            pods = self._random.randint(2, 6) if is_gang else self._random.randint(1, 4)
            pods *= self.factor
            kind = "gang" if is_gang else "plain"
            item = submitted(f"{kind}-{number}", pods, self._random.randint(1, 3), is_gang=is_gang)
        self.applications.append(item)
        ends = self._random.uniform(0.2, 4.0) if self._random.random() < 0.12 else 0.0
        return item, 0.0 if item.fits_nowhere else ends, self._random.random() < 0.1

    def _guarded(self, item: Submitted, ends: float, is_repeated: bool) -> None:
        try:
            self.client(item, ends, is_repeated=is_repeated)
        except Exception as error:
            self.wrong.append(f"{item.name}: a client of ours failed: {error!r}")

    def client(self, item: Submitted, ends: float = 0.0, *, is_repeated: bool = False) -> None:
        """Submit an application, perhaps once more, and perhaps delete it so many seconds later."""
        first = self._insist(item, "POST", "/v1/manifests")
        item.is_accepted = first.status_code == 200
        if not item.is_accepted:
            self.wrong.append(f"{item.name}: submission {first.status_code} {first.text[:300]}")
        if is_repeated:
            again = self._insist(item, "POST", "/v1/manifests")
            if (again.status_code, again.text) != (first.status_code, first.text):
                self.wrong.append(
                    f"{item.name}: repeated, {first.text[:200]} != {again.text[:200]}"
                )
        if ends:
            time.sleep(ends)
            self.delete(item)

    def delete(self, item: Submitted) -> None:
        """Delete an application; one that an unanswered attempt has deleted is gone, too."""
        answer = self._insist(item, "DELETE", f"/v1/applications/{item.name}")
        item.is_deleted = answer.status_code in (200, 404)
        if not item.is_deleted:
            self.wrong.append(f"{item.name}: deletion {answer.status_code} {answer.text[:300]}")

    def _insist(self, item: Submitted, method: str, path: str) -> httpx.Response:
        """Ask any replica until one answers what is not "later"."""
        chooser = random.Random(f"{self.seed}/{item.name}/{method}")
        key = f"{self.seed}/{item.name}"
        headers = {"Content-Type": "application/yaml", "Idempotency-Key": key}
        body = item.manifest if method == "POST" else None
        while time.monotonic() < self._given_up_at:
            url = f"{self.cluster.apis[chooser.choice(list(self.cluster.apis))]}{path}"
            try:
                answer = HTTP.request(
                    method, url, content=body, headers=headers, timeout=TIMEOUT_SECONDS
                )
            except httpx.HTTPError as error:
                self.answers[type(error).__name__] += 1
            else:
                self.answers[f"{method} {answer.status_code}"] += 1
                if answer.status_code < 500:
                    return answer
                if answer.status_code not in (503, 504):
                    self.wrong.append(f"{item.name}: {method} {answer.status_code}")
            time.sleep(PAUSE_SECONDS)
        raise TimeoutError(f"{method} was not answered within {PATIENCE_SECONDS:g} s of the quiet")

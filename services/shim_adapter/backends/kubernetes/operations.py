"""Operations on the API server, carried out until they succeed or are refused for good.

Rule 1: the operations of one pod are carried out in order, one after the other.
Rule 2: an API server that is down, slow, throttling or just started (no answer, 429, 5xx, 401, the
        403 of RBAC) has not decided: the operation is retried after a growing, jittered pause, or
        when the server answers again, without a limit of attempts. Refusals by quota and admission
        are final.
Rule 3: if the outcome is unknown, or 409 leaves it open, the pod is read. A bind refused for no
        reason visible at the pod is tried BIND_CONFLICTS times. An eviction is not retried by
        itself, because its preemptor may be gone. It is reported as refused once the pod shows that
        it was not carried out, and the core decides again.
Rule 4: placeholders that no gang waits for any more are not created, nor one that exists already
        but whose answer was lost (``cancel_creates``).
Rule 5: events and conditions are for users and autoscalers. They are written after all operations
        that can be carried out now, but wait PATIENCE_SECONDS at most. Conditions precede events,
        because autoscalers act on them. Beyond MAX_NOTES the oldest events are dropped and counted,
        or else the oldest conditions.
Rule 6: a right that is missing for longer than a server needs to start is reported once for every
        affected pod, and again when it is available (``NotAllowed``).
Limits: WORKERS concurrent requests for operations, one for notes.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import structlog
from prometheus_client import Counter

from services.shim_adapter.backends.kubernetes import bodies
from services.shim_adapter.backends.kubernetes.claim_objects import ClaimToWrite
from services.shim_adapter.backends.kubernetes.claim_writer import ClaimWriter
from services.shim_adapter.backends.kubernetes.client import (
    IN_FLIGHT,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    ApiClient,
    ApiServerError,
    jittered,
)
from services.shim_adapter.backends.kubernetes.observed import (
    Bound,
    EvictionRefused,
    NotAllowed,
    NotBound,
    NotCreated,
    Observed,
)
from services.shim_adapter.backends.kubernetes.volumes import SELECTED_NODE, ToMake
from services.shim_adapter.records import PodRecord

WORKERS = IN_FLIGHT - 2
MAX_NOTES = 10_000
PATIENCE_SECONDS = 1.0  # of notes: autoscalers are not to wait for ever beside a long row of binds
BIND_CONFLICTS = 8  # about half a minute in all: what keeps the bind is not seen at the pod
VOLUME_SECONDS = 600.0  # a volume that is not made by then: the pod is given another place
_PAUSE_SECONDS = (0.1, 10.0)
_REFUSED_PAUSE_SECONDS = (0.5, 60.0)
_BUDGET_PAUSE_SECONDS = 10.0  # unless the budget changes before
_PATIENT_ATTEMPTS = 6  # so long a restarted API server may not know our rights
STARTED_SECONDS = 3.0  # a server that starts knows our rights by then
_ALREADY_EXISTS, _CONFLICT = "AlreadyExists", "Conflict"
_DONE = Counter("muster_kubernetes_operations", "Operations by result", ["what", "result"])
_NOTES_LEFT_OUT = Counter("muster_kubernetes_notes_left_out", "Events and conditions left out")
log = structlog.get_logger("muster.kubernetes")


@dataclass(slots=True)
class Operation:
    """An operation on a pod. ``what`` names it: bind, create, delete, evict, fail, note."""

    what: str
    pod: PodRecord
    body: dict[str, Any]
    node: str = ""
    claims: tuple[ToMake, ...] = ()  # of volumes that are to be made on the node first
    devices: tuple[ClaimToWrite, ...] = ()  # claims that are to be written first
    attempts: int = 0
    started: float = 0.0
    is_cancelled: bool = False
    # a bind is refused for this, as if the API server had done so; an eviction had no answer
    why_not: str = ""
    pause: float = 0.0  # before it is begun, in seconds
    path: str = ""  # of a note that is a status: where it is written ("": at the pod)
    how: str = STRATEGIC_PATCH  # and as what kind of patch

    @property
    def kind(self) -> str:
        """The operation's name; events are a kind of their own."""
        return "event" if self.is_event else self.what

    @property
    def is_event(self) -> bool:
        """Whether it is a note with an event, not a condition."""
        return self.body.get("kind") == "Event"


def pod_path(pod: PodRecord, subresource: str = "") -> str:
    """Return a pod's API path."""
    tail = f"/{subresource}" if subresource else ""
    return f"/api/v1/namespaces/{pod.spec.namespace}/pods/{pod.spec.name}{tail}"


class _Notes:
    """The queue of notes to write."""

    def __init__(self) -> None:
        self._conditions: deque[Operation] = deque()
        self._events: deque[Operation] = deque()
        self._has_some = asyncio.Event()

    def put(self, note: Operation) -> None:
        """Queue a note; if there are too many, drop the oldest."""
        (self._events if note.is_event else self._conditions).append(note)
        if len(self._conditions) + len(self._events) > MAX_NOTES:
            (self._events or self._conditions).popleft()
            _NOTES_LEFT_OUT.inc()
        self._has_some.set()

    async def next(self) -> Operation:
        """Wait for a note; return the next one to write."""
        await self._has_some.wait()
        note = (self._conditions or self._events).popleft()
        if not (self._conditions or self._events):
            self._has_some.clear()
        return note


class Operations:
    """The operations of one session. ``report`` gets their results."""

    def __init__(self, client: ApiClient, report: Callable[[Observed], None]) -> None:
        self._client = client
        self._report = report
        self._device_claims = ClaimWriter(client)
        self._waiting: dict[str, deque[Operation]] = {}  # by pod; the first is being carried out
        self._ready: asyncio.Queue[str] = asyncio.Queue()  # as many as there are pods at most
        self._pausing: dict[str, asyncio.TimerHandle] = {}  # by pod: its first is tried again
        self._notes = _Notes()
        self._refusals: dict[str, int] = {}  # of binds and evictions, by pod
        self._not_allowed: dict[tuple[str, str], str] = {}  # rights, by pod and what it is about
        self._evictions_not_allowed: dict[str, float] = {}  # by pod, and since when
        self._late_notes = 0  # that wait for a right
        self._creates: dict[str, dict[str, Operation]] = {}  # not done, by application and name
        self._does: dict[str, Callable[[Operation], Awaitable[None]]] = {
            "bind": self._bind,
            "create": self._create,
            "delete": self._delete,
            "evict": self._evict,
            "fail": self._fail,
        }

    @property
    def pending(self) -> int:
        """The number of pods with unfinished operations."""
        return len(self._waiting)

    def add(self, operation: Operation) -> None:
        """Queue an operation; notes may be dropped."""
        if operation.what == "note":
            operation.started = asyncio.get_running_loop().time()
            self._notes.put(operation)
            return
        if operation.what == "create":
            application = operation.pod.spec.application_id
            self._creates.setdefault(application, {})[operation.pod.spec.name] = operation
        if operation.pause:
            pause, operation.pause = jittered(operation.pause), 0.0
            asyncio.get_running_loop().call_later(pause, self._enter, operation)
        else:
            self._enter(operation)

    def _enter(self, operation: Operation) -> None:
        uid = operation.pod.uid
        line = self._waiting.setdefault(uid, deque())
        line.append(operation)
        if len(line) == 1:
            self._ready.put_nowait(uid)

    def cancel_creates(self, application: str, name: str = "") -> None:
        """Stop creating an application's pods; one being created now will be observed.

        With a ``name``, only that pod, which exists: created again after its deletion, it would
        belong to no gang.
        """
        if name:
            found = self._creates.get(application, {}).get(name)
            cancelled = [] if found is None else [found]
        else:
            cancelled = [*self._creates.pop(application, {}).values()]
        for operation in cancelled:
            operation.is_cancelled = True

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._work())
            group.create_task(self._write_notes())
            group.create_task(self._end_pauses())

    async def _work(self) -> None:
        while True:
            uid = await self._ready.get()
            try:
                await self._do_next(uid)
            finally:
                self._ready.task_done()

    async def _do_next(self, uid: str) -> None:
        """Carry out a pod's first operation; the others follow later."""
        line = self._waiting[uid]
        operation = line[0]
        try:
            if operation.is_cancelled:
                _DONE.labels(operation.what, "cancelled").inc()
            else:
                await self._does[operation.what](operation)
        except ApiServerError as error:
            self._again(operation, error)
            return
        line.popleft()
        if not operation.why_not:
            self._is_allowed(operation)
        if operation.what == "create":
            self._is_made(operation)
        if line:
            self._ready.put_nowait(uid)
        else:
            del self._waiting[uid]

    def _is_made(self, operation: Operation) -> None:
        application = operation.pod.spec.application_id
        creates = self._creates.get(application, {})
        creates.pop(operation.pod.spec.name, None)
        if not creates:
            self._creates.pop(application, None)

    def _again(self, operation: Operation, error: ApiServerError) -> None:
        """Retry an operation after a pause: it neither succeeded nor was it refused for good."""
        pause = min(_PAUSE_SECONDS[0] * 2**operation.attempts, _PAUSE_SECONDS[1])
        operation.attempts = min(operation.attempts + 1, 10)
        _DONE.labels(operation.what, "tried again").inc()
        is_lasting = error.is_about_rights and operation.attempts > _PATIENT_ATTEMPTS
        if is_lasting:
            self._is_not_allowed(operation, error)
        if is_lasting or not (error.is_transient or error.code == HTTPStatus.CONFLICT):
            log.error(
                "the API server refuses a required operation; trying again",
                what=operation.what,
                pod=f"{operation.pod.spec.namespace}/{operation.pod.spec.name}",
                error=str(error),
            )
        uid = operation.pod.uid
        later = asyncio.get_running_loop().call_later(jittered(pause), self._end_pause, uid)
        self._pausing[uid] = later

    def _is_not_allowed(self, operation: Operation, error: ApiServerError) -> None:
        """Report, once, which right is missing for an operation on a pod."""
        about, right = (operation.pod.uid, operation.kind), error.missing_right
        if self._not_allowed.get(about) != right:
            self._not_allowed[about] = right
            _drop_oldest(self._not_allowed)
            self._report(NotAllowed(operation.pod, right))

    def _is_allowed(self, operation: Operation) -> None:
        """Record a success: a right reported as missing is available."""
        if self._not_allowed and self._not_allowed.pop((operation.pod.uid, operation.kind), ""):
            self._report(NotAllowed(operation.pod, ""))

    def _end_pause(self, uid: str) -> None:
        self._pausing.pop(uid).cancel()
        self._ready.put_nowait(uid)

    async def _end_pauses(self) -> None:
        """Retry everything when the API server answers again, because pauses grew meanwhile."""
        while True:
            await self._client.until_back()
            for uid in list(self._pausing):
                self._end_pause(uid)

    # --- binding --------------------------------------------------------------------------------

    async def _bind(self, operation: Operation) -> None:
        if operation.why_not:
            self._refuse(operation, operation.why_not)
            return
        if operation.claims and not await self._have_volumes(operation):
            return
        if operation.devices:
            refused = await self._device_claims.write(operation.pod, operation.devices)
            if refused:
                self._refuse(operation, refused)
                return
        try:
            await self._client.request("POST", pod_path(operation.pod, "binding"), operation.body)
        except ApiServerError as error:
            if error.code == HTTPStatus.TOO_MANY_REQUESTS or error.is_about_rights:
                raise
            if not await self._is_bound(operation, error):
                await self._device_claims.give_back(operation.devices)
                return
        self._refusals.pop(operation.pod.uid, None)
        _DONE.labels("bind", "done").inc()
        self._report(Bound(operation.pod.uid))

    async def _have_volumes(self, operation: Operation) -> bool:
        """Write the node at a pod's claims, and check that they are bound; False: it took too long.

        Raises ApiServerError while they are not, so that it is retried.
        """
        now = asyncio.get_running_loop().time()
        operation.started = operation.started or now
        pod = operation.pod
        for wanted in operation.claims:
            claim = wanted.claim
            path = f"/api/v1/namespaces/{pod.spec.namespace}/persistentvolumeclaims/{claim}"
            found = await self._client.request("GET", path)
            if (found.get("status") or {}).get("phase") == "Bound":
                volume = (found.get("spec") or {}).get("volumeName")
                if wanted.volume in ("", volume):
                    continue
                self._refuse(operation, f'claim "{claim}" got another volume, {volume}')
                return False
            told = (found["metadata"].get("annotations") or {}).get(SELECTED_NODE)
            if wanted.volume:
                if not await self._reserve_volume(operation, wanted, found["metadata"]["uid"]):
                    return False
            elif told != operation.node:
                body = {"metadata": {"annotations": {SELECTED_NODE: operation.node}}}
                await self._client.request("PATCH", path, body, content_type=MERGE_PATCH)
            reason = f'persistentvolumeclaim "{claim}" is not bound on node {operation.node} yet'
            if now - operation.started > VOLUME_SECONDS:
                self._refuse(operation, reason)
                return False
            raise ApiServerError(0, "", reason)
        return True

    async def _reserve_volume(self, operation: Operation, wanted: ToMake, uid: str) -> bool:
        """Reserve a volume for a claim, which a controller then binds; False if it is taken."""
        path = f"/api/v1/persistentvolumes/{wanted.volume}"
        owner = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": operation.pod.spec.namespace,
            "name": wanted.claim,
            "uid": uid,
        }
        volume = await self._client.request("GET", path)
        kept = (volume.get("spec") or {}).get("claimRef")
        if kept:
            if kept.get("uid") == uid:
                return True
            self._refuse(
                operation, f'persistentvolume "{wanted.volume}" was bound by another claim'
            )
            return False
        version = volume["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "spec": {"claimRef": owner}}
        await self._client.request("PATCH", path, body, content_type=MERGE_PATCH)
        return True

    async def _is_bound(self, operation: Operation, error: ApiServerError) -> bool:
        """Check whether a pod was bound after an error; False: it was not, which is reported.

        Raises ApiServerError if that is unknown, or the same bind may be tried again.
        """
        if not (error.is_transient or error.code == HTTPStatus.CONFLICT):
            self._refuse(operation, error.message)
            return False
        try:
            pod = await self._client.request("GET", pod_path(operation.pod))
        except ApiServerError as reading:
            if reading.code != HTTPStatus.NOT_FOUND:
                raise
            self._refuse(operation, reading.message)
            return False
        node = (pod.get("spec") or {}).get("nodeName") or ""
        is_the_same = pod["metadata"].get("uid") == operation.pod.uid
        if is_the_same and node == operation.node:
            return True
        is_open = error.is_transient or operation.attempts < BIND_CONFLICTS
        if is_the_same and not node and is_open and _may_be_bound(pod):
            raise error
        self._refuse(operation, error.message)
        return False

    def _refuse(self, operation: Operation, reason: str) -> None:
        """Report that a pod cannot be bound, after a growing pause to avoid a tight loop."""
        _DONE.labels("bind", "refused").inc()
        count = self._count_refusal(operation.pod.uid)
        pause = min(_REFUSED_PAUSE_SECONDS[0] * (2**count - 1), _REFUSED_PAUSE_SECONDS[1])
        news = NotBound(operation.pod.uid, reason)
        asyncio.get_running_loop().call_later(pause, self._report, news)

    def _count_refusal(self, uid: str) -> int:
        """Return how often a pod was refused since its last successful operation."""
        count = self._refusals[uid] = self._refusals.get(uid, -1) + 1
        _drop_oldest(self._refusals)
        return count

    # --- creating and deleting ------------------------------------------------------------------

    async def _create(self, operation: Operation) -> None:
        path = f"/api/v1/namespaces/{operation.pod.spec.namespace}/pods"
        try:
            await self._client.request("POST", path, operation.body)
        except ApiServerError as error:
            if error.is_transient or error.reason == _CONFLICT:  # with a quota, for a moment
                raise
            if error.reason != _ALREADY_EXISTS:  # else it was created, and the answer was lost
                _DONE.labels("create", "refused").inc()
                self._report(NotCreated(operation.pod.spec.application_id, str(error)))
                return
        _DONE.labels("create", "done").inc()

    async def _delete(self, operation: Operation) -> None:
        await self._unless_gone("DELETE", pod_path(operation.pod), operation)

    async def _evict(self, operation: Operation) -> None:
        """Evict a pod; report a refusal, such as by a disruption budget, and never override it.

        The core decides about another attempt: the preemptor may be gone, or have found other
        victims.
        """
        if operation.why_not:
            if await self._is_being_deleted(operation.pod):
                _DONE.labels("evict", "done").inc()
            else:
                self._spare(operation, operation.why_not, is_barred=False)
            return
        uid = operation.pod.uid
        try:
            await self._unless_gone("POST", pod_path(operation.pod, "eviction"), operation)
        except ApiServerError as error:
            if error.is_about_rights:
                now = asyncio.get_running_loop().time()
                if now - self._evictions_not_allowed.setdefault(uid, now) > STARTED_SECONDS:
                    self._is_not_allowed(operation, error)
                _drop_oldest(self._evictions_not_allowed)
            if error.is_transient and not error.is_about_budgets:
                operation.why_not = str(error)
                operation.attempts = self._count_refusal(operation.pod.uid)
                raise
            self._spare(operation, error.message, is_barred=True)
            return
        self._refusals.pop(uid, None)
        self._evictions_not_allowed.pop(uid, None)

    def _spare(self, operation: Operation, reason: str, *, is_barred: bool) -> None:
        """Report that a pod was not evicted; one that was refused is blocked for a while."""
        uid = operation.pod.uid
        _DONE.labels("evict", "refused").inc()
        self._report(EvictionRefused(uid, reason, is_barred=is_barred))
        if is_barred:
            later = EvictionRefused(uid, "", is_over=True)
            pause = jittered(_BUDGET_PAUSE_SECONDS)
            asyncio.get_running_loop().call_later(pause, self._report, later)

    async def _fail(self, operation: Operation) -> None:
        path = pod_path(operation.pod, "status")
        await self._unless_gone("PATCH", path, operation, content_type=MERGE_PATCH)

    async def _unless_gone(
        self, method: str, path: str, operation: Operation, content_type: str = "application/json"
    ) -> None:
        """Send a request about a pod; one that is gone, or was replaced by another, is no error."""
        try:
            await self._client.request(method, path, operation.body, content_type=content_type)
        except ApiServerError as error:
            unclear = (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)
            is_gone = error.code == HTTPStatus.NOT_FOUND
            if not is_gone and not (error.code in unclear and await self._is_gone(operation.pod)):
                raise
        _DONE.labels(operation.what, "done").inc()

    async def _is_gone(self, pod: PodRecord) -> bool:
        """Read whether a pod is gone. Raises ApiServerError if that is unknown."""
        return await self._found(pod) is None

    async def _is_being_deleted(self, pod: PodRecord) -> bool:
        """Read whether a pod is being deleted or gone. Raises ApiServerError if that is unknown."""
        found = await self._found(pod)
        return found is None or bool(found["metadata"].get("deletionTimestamp"))

    async def _found(self, pod: PodRecord) -> dict[str, Any] | None:
        """Read a pod; None if it is gone. Raises ApiServerError if that is unknown."""
        try:
            found: dict[str, Any] = await self._client.request("GET", pod_path(pod))
        except ApiServerError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            return None
        return found if found["metadata"].get("uid") == pod.uid else None

    # --- notes ----------------------------------------------------------------------------------

    async def _write_notes(self) -> None:
        while True:
            note = await self._notes.next()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(note.started + PATIENCE_SECONDS):
                    await self._ready.join()
            try:
                if note.is_event:
                    namespace = note.pod.spec.namespace
                    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
                    await self._client.request("POST", path, note.body)
                else:
                    path = note.path or pod_path(note.pod, "status")
                    await self._client.request("PATCH", path, note.body, content_type=note.how)
            except ApiServerError as error:
                _DONE.labels("note", "refused").inc()
                log.debug("a note was not written", name=note.pod.spec.name, error=str(error))
                if error.is_about_rights:
                    self._note_later(note, error)
                elif error.is_transient and note.attempts == 0:
                    note.attempts = 1
                    self.add(note)
                    await asyncio.sleep(_PAUSE_SECONDS[0])
            else:
                self._is_allowed(note)

    def _note_later(self, note: Operation, error: ApiServerError) -> None:
        """Retry a note while a starting server does not know our rights; then report the right."""
        if note.attempts > _PATIENT_ATTEMPTS:
            if note.pod.uid:
                self._is_not_allowed(note, error)
        elif self._late_notes < MAX_NOTES:
            pause = jittered(_PAUSE_SECONDS[0] * 2**note.attempts)
            note.attempts += 1
            self._late_notes += 1
            asyncio.get_running_loop().call_later(pause, self._add_late, note)

    def _add_late(self, note: Operation) -> None:
        self._late_notes -= 1
        self.add(note)


def _drop_oldest(found: dict[Any, Any]) -> None:
    """Drop the oldest entry beyond MAX_NOTES."""
    if len(found) > MAX_NOTES:
        del found[next(iter(found))]


def _may_be_bound(pod: dict[str, Any]) -> bool:
    gated = (pod.get("spec") or {}).get("schedulingGates")
    return not (gated or pod["metadata"].get("deletionTimestamp"))


def bind(pod: PodRecord, node: str, claims: tuple[ToMake, ...] = ()) -> Operation:
    """Return the operation that binds a pod, after volumes were made for its claims."""
    return Operation("bind", pod, bodies.binding(pod, node), node, claims)

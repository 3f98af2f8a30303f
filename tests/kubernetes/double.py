"""A double of an API server, in this process or in one of its own: honest about what schedulers see.

It keeps resourceVersions, resumes watches with bookmarks, answers 409 to a second bind, 404, 410 after
``compact``, and whatever failure it is told to. The shim adapter and the admission webhook have the
rights of deploy/kubernetes and no others, and for WARMING_SECONDS after a restart none at all; the
plugin OwnerReferencesPermissionEnforcement is on, and quotas hold. It serves what a ``version`` of
Kubernetes does, and anything else is 404. PodGroups and Workloads are served
where a test has it so (``serve``), and fields of pods that hang on them are dropped otherwise. Names,
events, volumes, claims and PodGroups are validated, and nothing else; the controllers that make pods are
those of ``controller_manager.py``, where a test enters them. With
``by_schemas`` what is written besides pods is as helm and kubectl see it (``BuiltIn``). Who has a token of
a service account has the rights of the roles that are stored.
``python -m tests.kubernetes.double PORT [JOURNAL]`` runs it alone; POST /double/NAME then does what the
methods of the same names do. With a journal it may be killed and started again: it has what it had
answered, no history, and a cold RBAC. Its etcd is the same process: ``lose_storage`` is how an API
server answers while etcd is away.
"""

import asyncio
import gzip
import json
import re
import sys
import time
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import yaml
from aiohttp import web

from tests.broker import free_port
from tests.kubernetes import groups, patches, pods, protobuf, schemas, storage, versions
from tests.kubernetes.built_in import Asked, BuiltIn
from tests.kubernetes.rights import ADMISSION, RBAC, Right, granted, granted_by_roles
from tests.kubernetes.store import ApiFailureError, Object, Store, event_for, now, selector_of
from tests.kubernetes.webhooks import Webhooks

PATH = re.compile(
    r"^/(?:api/v1|apis/(?P<group>[^/]+)/(?P<version>[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?/(?P<plural>[a-z]+)"
    r"(?:/(?P<name>[^/]+)(?:/(?P<sub>[a-z]+))?)?$"
)
ABOUT_KINDS = re.compile(r"/(?P<path>apis?|api/v1|apis/[^/]+/[^/]+)")
ABOUT_SCHEMAS = re.compile(r"/openapi/v3(?:/(?P<path>.+))?")
BOOKMARK_SECONDS = 1.0
EXPIRED = "expired"
WARMING_SECONDS = 0.8  # after a restart, until what RBAC grants is known again
BOUND_BY_RBAC = {"muster": RBAC, "muster-admission": ADMISSION}  # by the user agent; everybody
# else is an administrator
FINALIZERS: Right = ("update", "", "pods/finalizers", "")
VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
PACKED_BYTES, PACKED_LEVEL = 128 * 1024, 4  # answers of so many are packed, and how hard
_NAMED_BY_USERS = ("pods", "podgroups", "compositepodgroups", "persistentvolume", "resourceclaims")
UNCONFIRMED = 3  # writes that etcd still took when it went away, and never confirmed
HELD_SECONDS = 34  # that an API server waits for an etcd that is away (ADR 78)
_OF_A_LIST = ("apiVersion", "kind")
ETCD_AWAY = "rpc error: code = Unavailable desc = error reading from server: EOF"
CHECKS = {**pods.ADMISSION, **storage.CHECKS}
Where = tuple[str, str, str]  # namespace, name, subresource
SUBRESOURCES = {"binding": pods.bind, "eviction": pods.evict}


@dataclass(slots=True)
class Fault:
    """Answers to come: for requests that match, so many times. ``code`` 0: late, and no failure."""

    method: str
    path: str
    code: int
    times: int
    retry_after: int = 0
    delay: float = 0.0
    after: bool = False  # carried out all the same, only the answer is lost
    skip: int = 0  # requests that match and are let through first
    reason: str = "Injected"
    message: str = "told to fail"


class Double:
    """The server. ``url`` is where it answers once started."""

    def __init__(
        self,
        *,
        bookmark_seconds: float = BOOKMARK_SECONDS,
        journal: Path | None = None,
        version: str = versions.NEWEST,
        by_schemas: bool = False,
    ) -> None:
        has_generation = versions.minor_of(version) >= versions.POD_GENERATION
        self.store = Store(journal, (pods.PODS,) if has_generation else ())
        self.built_in = BuiltIn(self.store, schemas.of_version(version)) if by_schemas else None
        self.faults: list[Fault] = []
        self.requests: dict[str, int] = {}
        self.uses: dict[str, set[Right]] = {}
        self._accounts: dict[str, tuple[str, str]] = {}  # service accounts by their tokens
        self.rights = {agent: granted(file) for agent, file in BOUND_BY_RBAC.items()}
        # when RBAC is; None: not started yet
        self._warm_at: float | None = None if not self.store.objects else 0.0
        self._unconfirmed: int | None = None  # None: etcd is there
        self._is_stored: asyncio.Event | None = None  # where what is asked waits for that
        self.version = version
        self.served = versions.built_in(version)
        self.watched = 0  # watches that were begun, in all
        self.webhooks: Webhooks | None = None  # whoever is asked about what is written
        self.url = ""
        self._bookmark_seconds = bookmark_seconds
        self._watches: dict[asyncio.Task[Any], web.StreamResponse] = {}
        self._runner: web.AppRunner | None = None
        self.port = 0

    # --- what tests do --------------------------------------------------------------------------

    async def start(self, port: int = 0) -> None:
        """Listen, on a port that is had again after a stop."""
        if self._warm_at is None:
            self._warm_at = 0.0
        else:
            self.forget_rights()
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        self.port = port or free_port()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.url = f"http://127.0.0.1:{self.port}"

    def forget_rights(self) -> None:
        """Know nobody's rights for a moment, as after a restart."""
        self._warm_at = time.monotonic() + WARMING_SECONDS

    @property
    def is_warm(self) -> bool:
        """Return whether what RBAC grants is known."""
        return time.monotonic() >= (self._warm_at or 0.0)

    async def stop(self) -> None:
        """Be away; what is stored stays, and ``start`` with the same port brings it back."""
        self.cut()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def watches(self) -> int:
        """Return how many watches there are."""
        return len(self._watches)

    def cut(self) -> None:
        """Cut every watch."""
        for task in list(self._watches):
            task.cancel()

    def compact(self) -> None:
        self.store.compact()

    def lose_storage(self, holds: bool = False) -> None:
        """Answer as an API server whose etcd was killed, until ``regain_storage``.

        UNCONFIRMED writes are carried out and fail all the same; everything after them fails: at once,
        or, where the server's etcd client ``holds`` it, if etcd is not back within HELD_SECONDS.
        Watches end with 410, and those that come back do so to a history that was compacted.
        """
        self._unconfirmed = UNCONFIRMED
        self._is_stored = asyncio.Event() if holds else None
        self.store.beat()
        self.compact()
        for task in list(self._watches):
            task.cancel(EXPIRED)

    def regain_storage(self) -> None:
        self._unconfirmed = None
        if self._is_stored is not None:
            self._is_stored.set()
        self.store.beat()
        self.compact()

    def fault(self, **fault: Any) -> None:
        self.faults.append(Fault(**fault))

    def serve(self, path: str, plural: str, kind: str) -> None:
        """Serve a kind from now on: ``path`` is its group and version."""
        self.served.setdefault(path, {})[plural] = kind

    def serve_no_more(self, path: str) -> None:
        """Have an API group's version, and all its objects, no more."""
        group = path.partition("/")[0]
        for plural in self.served.pop(path):
            for obj in list(self.store.all(f"{plural}.{group}").values()):
                self.store.delete(f"{plural}.{group}", obj)

    # --- serving --------------------------------------------------------------------------------

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        fault = self._fault_for(request)
        try:
            if fault is not None and fault.delay:
                await asyncio.sleep(fault.delay)
            if fault is not None and fault.code and not fault.after:
                raise self._failure(fault)
            answer = await self._answer(request)
            if fault is not None and fault.code:
                raise self._failure(fault)
            return answer
        except ApiFailureError as failure:
            return _failed(failure)

    def _fault_for(self, request: web.Request) -> Fault | None:
        for fault in self.faults:
            if (
                fault.times
                and fault.method == request.method
                and re.search(fault.path, request.path_qs)
            ):
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                return fault
        return None

    @staticmethod
    def _failure(fault: Fault) -> ApiFailureError:
        return ApiFailureError(fault.code, fault.reason, fault.message, fault.retry_after)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/double/"):
            return await self._told(request)
        if request.path == "/openapi/v2":
            return web.Response(body=schemas.OPENAPI_2, content_type=schemas.OPENAPI_2_TYPE)
        about = self._about(request.path)
        return await self._of_objects(request) if about is None else _json(about)

    async def _of_objects(self, request: web.Request) -> web.StreamResponse:
        match = PATH.match(request.path)
        if match is None or not versions.is_served(self.served, match):
            raise ApiFailureError(404, "NotFound", f"no such path: {request.path}")
        group, namespace = match["group"] or "", match["namespace"] or ""
        plural, name, sub = match["plural"], match["name"] or "", match["sub"] or ""
        resource = f"{plural}.{group}" if group else plural
        count = f"{request.method} {resource}" + (f"/{sub}" if sub else "")
        self.requests[count] = self.requests.get(count, 0) + 1
        self._check_right(request, group, plural + (f"/{sub}" if sub else ""), name)
        if self._is_stored is not None and not self._unconfirmed:
            await self._held(request, self._is_stored)
        if request.method == "GET" and not name:
            if request.query.get("watch") in ("1", "true"):
                return await self._watch(request, resource, namespace)
            return self._list(request, resource, namespace)
        body = _body(request, await request.read())
        if request.method == "POST" and resource == pods.PODS and not sub:
            self._check_owners(request, body)
        method, where = request.method, (namespace, name, sub)
        if self.webhooks is not None and not sub:
            method, body = await self._admitted(self.webhooks, request, resource, where, body)
        return self._stored(request, method, resource, where, body)

    async def _admitted(
        self, webhooks: Webhooks, request: web.Request, resource: str, where: Where, body: Any
    ) -> tuple[str, Any]:
        """Return what is asked as the webhooks leave it: a patch is what it makes of the object."""
        kind = versions.kind_of(self.served, resource)["kind"]
        if request.method != "PATCH":
            return request.method, await webhooks.admit(request, (resource, kind), where, body)
        while True:
            live = self.store.get(resource, *where[:2])
            self._check_meant(live, request.content_type, body)
            after = deepcopy(live)
            self._change(resource, "", after, body, request.content_type)
            admitted = await webhooks.admit(request, (resource, kind), where, after)
            if self.store.get(resource, *where[:2]) is live:
                return "PUT", admitted  # else it has changed meanwhile: the patch is made anew

    def _stored(
        self, request: web.Request, method: str, resource: str, where: Where, body: Any
    ) -> web.StreamResponse:
        """Do what is asked of one object, and answer as etcd lets us."""
        is_confirmed = self._is_confirmed(request, resource, *where[1:])
        asked = _asked(request)
        answer = self._one(method, resource, where, body, asked)
        if not is_confirmed:
            raise _storage_failure(resource, *where[1:])
        for warning in asked.warnings:
            answer.headers.add("Warning", f"299 - {json.dumps(warning)}")
        return answer

    def _is_confirmed(self, request: web.Request, resource: str, name: str, sub: str) -> bool:
        """Return whether etcd will confirm what is asked. Raises ApiFailureError: it is away."""
        if self._unconfirmed is None:
            return True
        if request.method == "GET" or self._unconfirmed == 0:
            raise _storage_failure(resource, name, sub)
        self._unconfirmed -= 1
        return False

    async def _held(self, request: web.Request, is_stored: asyncio.Event) -> None:
        """Wait for etcd. Raises ApiFailureError: it did not come, or whoever asked has gone."""
        with suppress(TimeoutError):
            async with asyncio.timeout(HELD_SECONDS):
                await is_stored.wait()
        if not is_stored.is_set() or request.transport is None:
            text = f"Timeout: request did not complete within requested timeout {HELD_SECONDS}s"
            raise ApiFailureError(504, "Timeout", text)

    def _about(self, path: str) -> Object | None:
        """Return what anybody may ask of the server itself; None: it is about objects."""
        if path in ("/version", "/healthz", "/readyz"):
            major, _, minor = self.version.partition(".")
            return {"major": major, "minor": minor, "gitVersion": f"v{self.version}.0-double"}
        if found := ABOUT_KINDS.fullmatch(path):
            return versions.discovered(self.served, found["path"])
        found = ABOUT_SCHEMAS.fullmatch(path)
        return found and schemas.openapi(self.served, found["path"] or "")

    def _check_right(self, request: web.Request, group: str, resource: str, name: str) -> None:
        """Note what right a request needs, as RBAC names it, and refuse whoever has not got it."""
        verb = VERBS[request.method]
        if verb == "get" and not name:
            verb = "watch" if request.query.get("watch") else "list"
            name = request.query.get("fieldSelector", "").partition("metadata.name=")[2]
        if resource.startswith(_NAMED_BY_USERS) or verb == "create":
            name = ""
        if not self._may(request, (verb, group, resource, name)):
            agent = request.headers.get("User-Agent", "")
            text = (
                f'{resource.partition("/")[0]} is forbidden: User "{agent}" cannot '
                f'{verb} resource "{resource}" in API group "{group}" at the cluster scope'
            )
            raise ApiFailureError(403, "Forbidden", text)

    def _may(self, request: web.Request, right: Right) -> bool:
        agent = request.headers.get("User-Agent", "")
        self.uses.setdefault(agent, set()).add(right)
        rights = self._rights_by_token(request)
        if rights is None:
            rights = self.rights.get(agent)
        if rights is None:
            return True
        anywhere = (*right[:3], "")
        return self.is_warm and (right in rights or anywhere in rights)

    def _rights_by_token(self, request: web.Request) -> set[Right] | None:
        """Return what a service account's token grants here; None: there is no such token."""
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        account = self._accounts.get(token)
        match = PATH.match(request.path)
        if account is None or match is None:
            return None
        return granted_by_roles(self.store, account, match["namespace"] or "")

    def _token(self, namespace: str, name: str) -> Object:
        """Make a token of a service account, as its subresource does."""
        self.store.get("serviceaccounts", namespace, name)
        token = f"token-{len(self._accounts)}"
        self._accounts[token] = (namespace, name)
        return {"kind": "TokenRequest", "status": {"token": token}}

    def _check_owners(self, request: web.Request, body: Object) -> None:
        """Do as OwnerReferencesPermissionEnforcement: an owner is not held up by just anybody."""
        metadata = body.get("metadata") or {}
        holds_up = any(o.get("blockOwnerDeletion") for o in metadata.get("ownerReferences") or ())
        if holds_up and not self._may(request, FINALIZERS):
            text = (
                f'pods "{metadata.get("name")}" is forbidden: cannot set blockOwnerDeletion if an '
                "ownerReference refers to a resource you can't set finalizers on: "
            )
            raise ApiFailureError(403, "Forbidden", text)

    def _one(
        self, method: str, resource: str, where: Where, body: Any, asked: Asked
    ) -> web.StreamResponse:
        namespace, name, sub = where
        store = self.store
        if method == "GET":
            return _json(store.get(resource, namespace, name))
        if method == "PUT":
            return _json(self._put(resource, namespace, name, body, asked))
        if method == "PATCH":
            return self._patched(resource, where, body, asked)
        if method == "DELETE":
            if resource == pods.PODS:
                return _json(pods.delete(store, namespace, name, body or {}))
            return _json(store.delete(resource, store.get(resource, namespace, name)))
        if sub:
            return _json(self._subresource(where, body), 201)
        return _json(self._created(resource, namespace, body, asked), 201)

    def _subresource(self, where: Where, body: Any) -> Object:
        namespace, name, sub = where
        if sub == "token":
            return self._token(namespace, name)
        SUBRESOURCES[sub](self.store, namespace, name, body)
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _patched(self, resource: str, where: Where, body: Any, asked: Asked) -> web.StreamResponse:
        if asked.content_type == patches.APPLY and not self.store.has(resource, where[:2]):
            return _json(self._created(resource, where[0], body, asked), 201)
        return _json(self._patch(resource, where, body, asked))

    def _created(self, resource: str, namespace: str, body: Object, asked: Asked) -> Object:
        if self.built_in is not None and namespace:
            self.store.get("namespaces", "", namespace)
        self._admit(resource, namespace, body)
        if self.built_in is None or resource == pods.PODS:
            return self.store.create(resource, namespace, body)
        if asked.content_type != patches.APPLY:  # which says it; of others the path does
            body = {**versions.kind_of(self.served, resource), **body}
        return self.built_in.create(resource, namespace, body, asked)

    def _admit(self, resource: str, namespace: str, body: Object) -> None:
        """Default and check an object that is being created."""
        if resource in CHECKS:
            CHECKS[resource](self.store, namespace, body)
        if resource == pods.PODS:
            groups.prune(self.served, body)
            versions.prune(self.served, body)
        groups.check(resource, body)
        groups.reset_status(resource, body)

    def _put(self, resource: str, namespace: str, name: str, body: Object, asked: Asked) -> Object:
        obj = self.store.get(resource, namespace, name)
        version = body["metadata"].get("resourceVersion")
        if version and version != obj["metadata"]["resourceVersion"]:
            text = f'Operation cannot be fulfilled on {resource} "{name}": the object has been modified'
            raise ApiFailureError(409, "Conflict", text)
        if self.built_in is not None and resource != pods.PODS:
            body = {**versions.kind_of(self.served, resource), **body}
            return self.built_in.put(resource, obj, body, asked)

        def change(copy: Object) -> None:
            kept = {k: copy["metadata"][k] for k in ("uid", "creationTimestamp")}
            copy.clear()
            copy.update(body)
            copy["metadata"] = {**body["metadata"], **kept}
            if namespace:
                copy["metadata"]["namespace"] = namespace

        return self.store.update(resource, obj, change)

    def _patch(self, resource: str, where: Where, body: Object, asked: Asked) -> Object:
        namespace, name, sub = where
        groups.check_patch(resource, asked.content_type)
        obj = self.store.get(resource, namespace, name)
        self._check_meant(obj, asked.content_type, body)
        if self.built_in is not None and resource != pods.PODS and not sub:
            return self.built_in.patch(resource, obj, body, asked)
        change = partial(self._change, resource, sub, patch=body, content_type=asked.content_type)
        return self.store.update(resource, obj, change)

    @staticmethod
    def _check_meant(obj: Object, content_type: str, patch: Any) -> None:
        """Refuse a patch that is meant for another object of the name, or an earlier version."""
        said = {} if content_type == patches.JSON else patch.get("metadata") or {}
        wanted = said.get("uid")
        if wanted and wanted != obj["metadata"]["uid"]:
            raise ApiFailureError(409, "Conflict", f"uid mismatch: {wanted}")
        version = said.get("resourceVersion")
        if version and version != obj["metadata"]["resourceVersion"]:
            raise ApiFailureError(409, "Conflict", "the object has been modified")

    def _change(
        self, resource: str, sub: str, copy: Object, patch: Object, content_type: str
    ) -> None:
        """Carry a patch out on a copy of an object, or of its status."""
        before = deepcopy(copy)
        if sub == "status" and content_type == patches.STRATEGIC:
            pods.patch_status(copy, patch.get("status") or {})
        else:
            is_status = sub == "status"
            patches.merge(copy, {k: v for k, v in patch.items() if (k == "status") is is_status})
        if sub == "status" and resource == pods.PODS:
            versions.prune_status(self.version, copy["status"])
        groups.check(resource, copy, before)

    def _list(self, request: web.Request, resource: str, namespace: str) -> web.StreamResponse:
        self._is_confirmed(request, resource, "", "")
        selects = self._selector(request)
        found = [
            obj
            for (where, _), obj in self.store.all(resource).items()
            if (not namespace or where == namespace) and selects(obj)
        ]
        version, _, at = request.query.get("continue", "").partition(":")
        if version and int(version) < self.store.oldest:
            text = "The provided continue parameter is too old to display a consistent list result."
            raise ApiFailureError(410, "Expired", text)
        start = int(at or 0)
        limit = int(request.query.get("limit") or 0) or len(found)
        metadata = {"resourceVersion": str(self.store.version)}
        if start + limit < len(found):
            metadata["continue"] = f"{version or self.store.version}:{start + limit}"
        about = versions.kind_of(self.served, resource)
        about["kind"] += "List"
        page = found[start : start + limit]
        if about["apiVersion"] in versions.built_in(self.version):  # whose items do not say it
            page = [{k: v for k, v in obj.items() if k not in _OF_A_LIST} for obj in page]
        return _packed(request, _json({**about, "metadata": metadata, "items": page}))

    @staticmethod
    def _selector(request: web.Request) -> Any:
        return selector_of(
            request.query.get("fieldSelector", ""), request.query.get("labelSelector", "")
        )

    async def _watch(
        self, request: web.Request, resource: str, namespace: str
    ) -> web.StreamResponse:
        self._is_confirmed(request, resource, "", "")
        selects = self._selector(request)
        version = int(request.query.get("resourceVersion") or self.store.version)
        list(self.store.since(resource, version))  # 410 as an answer, when it is too old at once
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self._watches[task] = response
        self.watched += 1
        seconds = float(request.query.get("timeoutSeconds") or 3600)
        try:
            async with asyncio.timeout(seconds):
                await self._stream(response, resource, namespace, version, selects)
        except (TimeoutError, ConnectionError):
            pass
        except asyncio.CancelledError as why:
            task.uncancel()
            if why.args == (EXPIRED,):
                gone = ApiFailureError(410, "Expired", "mvcc: required revision has been compacted")
                last = {"type": "ERROR", "object": _status(gone)}
                with suppress(ConnectionError):
                    await response.write(orjson.dumps(last) + b"\n")
            elif request.transport is not None:
                request.transport.abort()
        finally:
            self._watches.pop(task, None)
        return response

    async def _stream(
        self,
        response: web.StreamResponse,
        resource: str,
        namespace: str,
        version: int,
        selects: Any,
    ) -> None:
        while True:
            waiting = self.store.changed
            lines = []
            try:
                for event in self.store.since(resource, version):
                    seen = event_for(event, selects)
                    where = event.last["metadata"].get("namespace", "")
                    if seen is not None and (not namespace or namespace == where):
                        lines.append(orjson.dumps({"type": seen[0], "object": seen[1]}))
                version = self.store.version
            except ApiFailureError as failure:
                lines.append(orjson.dumps({"type": "ERROR", "object": _status(failure)}))
                await response.write(b"\n".join(lines) + b"\n")
                return
            if lines:
                await response.write(b"\n".join(lines) + b"\n")
            try:
                async with asyncio.timeout(self._bookmark_seconds):
                    await waiting.wait()
            except TimeoutError:
                mark = {"metadata": {"resourceVersion": str(version)}}
                await response.write(orjson.dumps({"type": "BOOKMARK", "object": mark}) + b"\n")

    async def _told(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read() or b"{}")
        what = request.path.removeprefix("/double/")
        if what == "requests":
            return _json(self.requests)
        told = {
            "cut": self.cut,
            "compact": self.compact,
            "lose_storage": self.lose_storage,
            "regain_storage": self.regain_storage,
            "fault": self.fault,
            "load": self.load,
            "submit": self.submit,
            "touch": self.touch,
        }
        told[what](**body)
        return _json({})

    def submit(self, count: int, queue: str, first: int = 0) -> None:
        """Make pods of ours, all at once; ``first`` is the number of the first of them."""
        for at in range(first, first + count):
            labels = {"applicationId": f"app-{at % 10}", "queue": queue}
            pod = a_pod(f"mine-{at:06d}", cpu="10m", labels=labels)
            pods.admit(self.store, "default", pod)
            self.store.create(pods.PODS, "default", pod)

    def touch(self, first: int, count: int) -> None:
        """Let something happen to so many of the pods that are there: kubelets say that they run."""
        for pod in [*self.store.all(pods.PODS).values()][first : first + count]:
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": now()}
            self.store.update(pods.PODS, pod, partial(pods.set_condition, condition=ready))

    def load(self, nodes: int, pods_in_all: int, foreign: bool = True) -> None:
        """Fill the cluster: so many nodes, and pods of another scheduler spread over them."""
        capacity = {"cpu": "32", "memory": "256Gi", "pods": "110"}
        for at in range(nodes):
            node = {"metadata": {"name": f"node-{at:05d}"}, "status": {"allocatable": capacity}}
            self.store.create("nodes", "", node)
        for at in range(pods_in_all):
            pod = a_pod(f"web-{at:05d}", scheduler="default-scheduler", cpu="100m")
            pod["spec"]["nodeName"] = f"node-{at % nodes:05d}"
            pods.admit(self.store, "default", pod)
            pod["status"]["phase"] = "Running"
            self.store.create(pods.PODS, "default", pod)


def a_pod(name: str, *, scheduler: str = "yunikorn", cpu: str = "1", **more: Any) -> Object:
    """Return a small pod."""
    labels = {"app": "x", **more.pop("labels", {})}
    annotations = more.pop("annotations", {})
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"schedulerName": scheduler, "containers": [container], **more},
    }


def _body(request: web.Request, data: bytes) -> Any:
    """Return what a request says. Raises ApiFailureError 415: in a form that is not understood."""
    if not data:
        return {}
    is_patch = request.method == "PATCH"
    if request.content_type == protobuf.MEDIA_TYPE and request.method != "DELETE":
        return protobuf.secret_of(data)
    if request.method == "DELETE" and request.content_type == protobuf.MEDIA_TYPE:
        return {}
    if request.content_type not in (patches.MEDIA_TYPES if is_patch else ("application/json",)):
        text = f"the body of the request was in an unknown format: {request.content_type}"
        raise ApiFailureError(415, "UnsupportedMediaType", text)
    return yaml.safe_load(data) if request.content_type == patches.APPLY else orjson.loads(data)


def _asked(request: web.Request) -> Asked:
    """Return how a write is asked for. Raises ApiFailureError: no dry run is had here."""
    if request.query.get("dryRun"):
        raise ApiFailureError(400, "BadRequest", "the double has no dry run")
    agent = request.headers.get("User-Agent", "").partition("/")[0]
    return Asked(
        request.query.get("fieldManager") or agent,
        request.content_type,
        request.query.get("fieldValidation") or "Warn",
        request.query.get("force") == "true",
    )


def _storage_failure(resource: str, name: str, sub: str) -> ApiFailureError:
    """Return how an API server says that etcd is away: of a binding it makes a conflict."""
    if sub == "binding":
        text = f'Operation cannot be fulfilled on {resource}/{sub} "{name}": {ETCD_AWAY}'
        return ApiFailureError(409, "Conflict", text)
    return ApiFailureError(500, "InternalError", ETCD_AWAY)


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")


def _packed(request: web.Request, answer: web.Response) -> web.Response:
    """Pack what is large for whoever can unpack it, as API servers do since 1.16."""
    body = bytes(answer.body)  # type: ignore[arg-type]
    if len(body) > PACKED_BYTES and "gzip" in request.headers.get("Accept-Encoding", ""):
        answer.body = gzip.compress(body, PACKED_LEVEL)
        answer.headers["Content-Encoding"] = "gzip"
    return answer


def _status(failure: ApiFailureError) -> Object:
    return {
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": failure.code, "reason": failure.reason, "message": failure.message,
    }  # fmt: skip


def _failed(failure: ApiFailureError) -> web.Response:
    response = _json(_status(failure), failure.code)
    if failure.retry_after:
        response.headers["Retry-After"] = str(failure.retry_after)
    return response


async def main(port: int, journal: Path | None = None) -> None:
    """Run alone until killed."""
    double = Double(journal=journal)
    await double.start(port)
    print(double.url, flush=True)
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), *map(Path, sys.argv[2:3])))

"""The controllers of kube-controller-manager that make pods, for the double, each as its service account.

As theirs: a Deployment's ReplicaSet is the one whose template is the Deployment's but for the label
`pod-template-hash`; its name is a hash of the template and of `status.collisionCount`, which grows when
another template has that name. A ReplicaSet, StatefulSet, DaemonSet and Job make their pods, a CronJob
its Job when a test says that it is time (``fire``); what a controller owner made goes with it.
Everything is listed anew for every round, so that no cache is behind. Not done: rollback, pauses, pod
failure policies, indexed Jobs, persistent volume claims of StatefulSets, taints on a DaemonSet's nodes.
"""

import asyncio
import json
import zlib
from contextlib import suppress
from copy import deepcopy
from typing import Any, Self

from services.shim_adapter.backends.kubernetes.access import Access
from services.shim_adapter.backends.kubernetes.client import MERGE_PATCH, ApiClient, ApiServerError
from services.shim_adapter.backends.kubernetes.reflector import Reflector, Source

Object = dict[str, Any]
ACCOUNT = "system:serviceaccount:kube-system:"
HASH, REVISION = "pod-template-hash", "controller-revision-hash"
_SAFE = "bcdfghjklmnpqrstvwxz2456789"
_PAUSE_SECONDS = 0.05
_PATHS = {
    "Deployment": "/apis/apps/v1", "ReplicaSet": "/apis/apps/v1", "StatefulSet": "/apis/apps/v1",
    "DaemonSet": "/apis/apps/v1", "Job": "/apis/batch/v1", "CronJob": "/apis/batch/v1",
    "Pod": "/api/v1",
}  # fmt: skip
_MAKERS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")
_ACCOUNTS = {
    "Deployment": "deployment-controller", "ReplicaSet": "replicaset-controller",
    "StatefulSet": "statefulset-controller", "DaemonSet": "daemon-set-controller",
    "Job": "job-controller", "CronJob": "cronjob-controller", "": "generic-garbage-collector",
}  # fmt: skip


def path_of(kind: str, namespace: str = "", name: str = "") -> str:
    """Return where objects of a kind are, or one of them."""
    where = f"/namespaces/{namespace}" if namespace else ""
    return f"{_PATHS[kind]}{where}/{kind.lower()}s" + (f"/{name}" if name else "")


def hash_of(template: Object, collisions: int) -> str:
    """Return the hash of a template, another one for every collision."""
    text = json.dumps([template, collisions], sort_keys=True)
    return "".join(_SAFE[int(digit)] for digit in str(zlib.crc32(text.encode())))


class ControllerManager:
    """The controllers over one API server, while it is entered."""

    def __init__(self, access: Access) -> None:
        self.failures: list[str] = []  # what a controller was refused, oldest first
        self._clients = {
            kind: ApiClient(access, ACCOUNT + name) for kind, name in _ACCOUNTS.items()
        }
        self._news = asyncio.Event()
        self._news.set()
        watched = [*_PATHS, "Node"]
        paths = {kind: path_of(kind) for kind in _PATHS} | {"Node": "/api/v1/nodes"}
        reader = self._clients[""]
        self._reflectors = [
            Reflector(reader, Source(kind, paths[kind]), self._hear) for kind in watched
        ]
        self._tasks: list[asyncio.Task[None]] = []
        self._there: dict[str, list[Object]] = {}
        self._owned: dict[str, list[Object]] = {}  # by the uid of the controller owner

    async def __aenter__(self) -> Self:
        jobs = [*(reflector.run() for reflector in self._reflectors), self._run()]
        self._tasks = [asyncio.create_task(job) for job in jobs]
        for reflector in self._reflectors:
            await reflector.is_listed.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients.values():
            await client.close()

    async def fire(self, namespace: str, name: str) -> Object:
        """Make the Job of a CronJob, whose time has come."""
        owner = await self._clients[""].request("GET", path_of("CronJob", namespace, name))
        template = owner["spec"]["jobTemplate"]
        body = {"metadata": deepcopy(template.get("metadata") or {}), "spec": template["spec"]}
        body["metadata"]["name"] = f"{name}-{hash_of(template, len(self._there.get('Job', ())))}"
        return await self._make("CronJob", owner, "Job", body)

    # --- rounds ---------------------------------------------------------------------------------

    async def _hear(self, _: str, __: Object) -> None:
        self._news.set()

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._round()
            except ApiServerError as error:
                self._fail(error)

    def _fail(self, error: ApiServerError) -> None:
        """Note a failure, unless the object was deleted since it was listed; try again after a pause."""
        if error.reason != "NotFound":
            self.failures.append(str(error))
        asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._news.set)

    async def _round(self) -> None:
        self._there, self._owned = {}, {}
        for kind in _PATHS:
            found = await self._clients[""].request("GET", path_of(kind))
            self._there[kind] = sorted(
                found["items"], key=lambda item: int(item["metadata"]["resourceVersion"])
            )
            for item in self._there[kind]:
                self._owned.setdefault(_owner_of(item), []).append({**item, "kind": kind})
        await self._collect()
        for kind in _MAKERS:
            for owner in self._there[kind]:
                if not owner["metadata"].get("deletionTimestamp"):
                    try:
                        await getattr(self, f"_sync_{kind.lower()}")(owner)
                    except ApiServerError as error:
                        self._fail(error)

    async def _collect(self) -> None:
        """Delete what a controller made that is no more."""
        uids = {item["metadata"]["uid"] for items in self._there.values() for item in items}
        for uid in [uid for uid in self._owned if uid and uid not in uids]:
            for item in self._owned[uid]:
                if any(owner["kind"] in _PATHS for owner in item["metadata"]["ownerReferences"]):
                    await self._delete("", item["kind"], item)

    def _of(self, owner: Object, kind: str) -> list[Object]:
        """Return what of a kind an object made that is not going, the least changed first."""
        owned = self._owned.get(owner["metadata"]["uid"], ())
        return [
            item
            for item in owned
            if item["kind"] == kind and not item["metadata"].get("deletionTimestamp")
        ]

    # --- Deployments ----------------------------------------------------------------------------

    async def _sync_deployment(self, owner: Object) -> None:
        spec, sets = owner["spec"], self._of(owner, "ReplicaSet")
        sets.sort(key=lambda item: item["metadata"]["creationTimestamp"])
        ours = [
            item for item in sets if _without_hash(item["spec"]["template"]) == spec["template"]
        ]
        if not ours:
            await self._new_set(owner)
            return
        wanted, old = spec.get("replicas", 1), [item for item in sets if item is not ours[0]]
        surge = max(1, -(-wanted // 4))
        others = sum(item["spec"]["replicas"] for item in old)
        has = ours[0]["spec"]["replicas"]
        grown = max(has, min(wanted, wanted + surge - others)) if wanted > has else wanted
        await self._scale(ours[0], grown)
        ready = [item for one in sets for item in self._of(one, "Pod") if _is_ready(item)]
        spare = len(ready) - (wanted - wanted // 4)
        for item in old:
            unready = [pod for pod in self._of(item, "Pod") if not _is_ready(pod)]
            less = min(item["spec"]["replicas"], max(0, spare) + len(unready))
            spare -= max(0, less - len(unready))
            await self._scale(item, item["spec"]["replicas"] - less)
        new = self._of(ours[0], "Pod")
        status = {"replicas": others + len(new), "updatedReplicas": len(new)}
        status |= {"readyReplicas": len(ready), "availableReplicas": len(ready)}
        await self._say("Deployment", owner, status)

    async def _new_set(self, owner: Object) -> None:
        spec, collisions = owner["spec"], (owner.get("status") or {}).get("collisionCount", 0)
        hashed = hash_of(spec["template"], collisions)
        template = deepcopy(spec["template"])
        template.setdefault("metadata", {}).setdefault("labels", {})[HASH] = hashed
        selector = deepcopy(spec["selector"])
        selector.setdefault("matchLabels", {})[HASH] = hashed
        body = {
            "metadata": {
                "name": f"{owner['metadata']['name']}-{hashed}",
                "labels": template["metadata"]["labels"],
            },
            "spec": {"replicas": 0, "selector": selector, "template": template},
        }
        try:
            await self._make("Deployment", owner, "ReplicaSet", body)
        except ApiServerError as error:
            if error.reason != "AlreadyExists":
                raise
            await self._say("Deployment", owner, {"collisionCount": collisions + 1})

    async def _scale(self, item: Object, replicas: int) -> None:
        if item["spec"]["replicas"] != replicas:
            where = _where("ReplicaSet", item)
            body = {"spec": {"replicas": replicas}}
            client = self._clients["Deployment"]
            await client.request("PATCH", where, body, content_type=MERGE_PATCH)

    # --- pods -----------------------------------------------------------------------------------

    async def _sync_replicaset(self, owner: Object) -> None:
        pods = [pod for pod in self._of(owner, "Pod") if not _has_ended(pod)]
        wanted = owner["spec"].get("replicas", 1)
        for _ in range(wanted - len(pods)):
            await self._pod("ReplicaSet", owner)
        for pod in sorted(pods, key=_is_ready)[: max(0, len(pods) - wanted)]:
            await self._delete("ReplicaSet", "Pod", pod)

    async def _sync_statefulset(self, owner: Object) -> None:
        """Make pods one after the other, each when the one before is ready; the last goes first."""
        name, spec = owner["metadata"]["name"], owner["spec"]
        pods = {pod["metadata"]["name"]: pod for pod in self._all_of(owner, "Pod")}
        revision = f"{name}-{hash_of(spec['template'], 0)}"
        names = [f"{name}-{at}" for at in range(spec.get("replicas", 1))]
        for each in names:
            pod = pods.get(each)
            if pod is None:
                await self._pod("StatefulSet", owner, name=each, label={REVISION: revision})
                return
            if not _is_ready(pod):
                return
        for each in [*sorted(set(pods) - set(names)), *reversed(names)]:
            if each not in names or pods[each]["metadata"]["labels"].get(REVISION) != revision:
                await self._delete("StatefulSet", "Pod", pods[each])
                return

    def _all_of(self, owner: Object, kind: str) -> list[Object]:
        """Return what of a kind an object made, also what is going."""
        owned = self._owned.get(owner["metadata"]["uid"], ())
        return [item for item in owned if item["kind"] == kind]

    async def _sync_daemonset(self, owner: Object) -> None:
        nodes = (await self._clients[""].request("GET", "/api/v1/nodes"))["items"]
        revision = hash_of(owner["spec"]["template"], 0)
        there = {_node_wanted(pod): pod for pod in self._all_of(owner, "Pod")}
        names = [node["metadata"]["name"] for node in nodes]
        for pod in [pod for node, pod in there.items() if node not in names]:
            await self._delete("DaemonSet", "Pod", pod)
        for name in names:
            pod = there.get(name)
            if pod is None:
                await self._pod("DaemonSet", owner, node=name, label={REVISION: revision})
            elif pod["metadata"]["labels"].get(REVISION) != revision:
                await self._delete("DaemonSet", "Pod", pod)

    async def _sync_job(self, owner: Object) -> None:
        spec, pods = owner["spec"], self._of(owner, "Pod")
        done = sum(pod["status"]["phase"] == "Succeeded" for pod in pods)
        failed = sum(pod["status"]["phase"] == "Failed" for pod in pods)
        active = len(pods) - done - failed
        is_over = failed > spec.get("backoffLimit", 6)
        left = spec.get("completions", spec.get("parallelism", 1)) - done - active
        free = 0 if is_over or spec.get("suspend") else spec.get("parallelism", 1) - active
        for _ in range(min(left, free)):
            await self._pod("Job", owner)
        await self._say("Job", owner, {"active": active, "succeeded": done, "failed": failed})

    async def _pod(
        self,
        kind: str,
        owner: Object,
        *,
        name: str = "",
        node: str = "",
        label: Object | None = None,
    ) -> None:
        template = deepcopy(owner["spec"]["template"])
        metadata = template.setdefault("metadata", {})
        metadata["labels"] = {**(metadata.get("labels") or {}), **(label or {})}
        metadata |= {"name": name} if name else {"generateName": f"{owner['metadata']['name']}-"}
        if node:
            one = {"key": "metadata.name", "operator": "In", "values": [node]}
            required = {"nodeSelectorTerms": [{"matchFields": [one]}]}
            affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
            template["spec"]["affinity"] = {"nodeAffinity": affinity}
        await self._make(kind, owner, "Pod", template)

    # --- writing --------------------------------------------------------------------------------

    async def _make(self, by: str, owner: Object, kind: str, body: Object) -> Object:
        metadata = owner["metadata"]
        reference = {
            "apiVersion": _PATHS[by].removeprefix("/apis/"), "kind": by, "name": metadata["name"],
            "uid": metadata["uid"], "controller": True, "blockOwnerDeletion": True,
        }  # fmt: skip
        body["metadata"]["ownerReferences"] = [reference]
        version = _PATHS[kind].removeprefix("/apis/").removeprefix("/api/")
        body = {"apiVersion": version, "kind": kind, **body}
        path = path_of(kind, metadata["namespace"])
        return await self._clients[by].request("POST", path, body)

    async def _say(self, kind: str, owner: Object, status: Object) -> None:
        said = owner.get("status") or {}
        if any(said.get(key) != value for key, value in status.items()):
            path = f"{_where(kind, owner)}/status"
            body = {"status": status}
            await self._clients[kind].request("PATCH", path, body, content_type=MERGE_PATCH)

    async def _delete(self, by: str, kind: str, item: Object) -> None:
        if item["metadata"].get("deletionTimestamp"):
            return
        with suppress(ApiServerError):
            body = {"preconditions": {"uid": item["metadata"]["uid"]}}
            await self._clients[by].request("DELETE", _where(kind, item), body)


def _where(kind: str, item: Object) -> str:
    return path_of(kind, item["metadata"]["namespace"], item["metadata"]["name"])


def _owner_of(item: Object) -> str:
    owners = item["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller")), "")


def _without_hash(template: Object) -> Object:
    found = deepcopy(template)
    found["metadata"]["labels"].pop(HASH, None)
    return found


def _has_ended(pod: Object) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _node_wanted(pod: Object) -> str:
    required = pod["spec"]["affinity"]["nodeAffinity"]
    terms = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return str(terms[0]["matchFields"][0]["values"][0])

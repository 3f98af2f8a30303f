"""Pods with volumes: where unbound ones may be placed, and what is attached to nodes."""

from collections.abc import Callable
from dataclasses import replace

from services.shim_adapter.backends.kubernetes.objects import PodView
from services.shim_adapter.backends.kubernetes.observed import (
    ClaimSeen,
    CsiNodeSeen,
    StorageClassSeen,
    VolumeSeen,
)
from services.shim_adapter.backends.kubernetes.volumes import (
    ToMake,
    Volumes,
    within,
)
from services.shim_adapter.mirror.calls import News, NodeNews, PodChanged
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import PodRecord
from shared.messages.commands import PodSpec
from shared.messages.constraints import Constraints, Toleration


class PodsWithVolumes:
    """The pods. ``admit`` adds one that no longer waits, and returns the reports."""

    def __init__(self, world: World, admit: Callable[[PodView, int], list[News]]) -> None:
        self.volumes = Volumes()
        self._world = world
        self._admit = admit
        self._waiting: dict[str, PodView] = {}
        self._own: dict[str, Constraints] = {}  # without what volumes add
        self._named: dict[str, tuple[str, tuple[str, ...]]] = {}  # namespace and claims, by pod
        self.limits: dict[str, dict[str, int]] = {}  # of nodes, by driver

    def name(self, view: PodView) -> list[News]:
        """Record the claims of a new pod; return reports of pods that share one now."""
        spec = view.spec
        if spec is None or not spec.claims:
            return []
        self._named[view.uid] = spec.namespace, spec.claims
        others = self.volumes.name(view.uid, spec.namespace, spec.claims)
        return [news for uid in others for news in self.restated(uid)]

    def spec_of(self, view: PodView) -> tuple[PodSpec, str]:
        """Return a new pod's spec restricted by its volumes, and why it must wait, or ""."""
        spec = view.spec
        assert spec is not None
        if not spec.claims:
            return spec, ""
        if view.node:
            self._waiting.pop(view.uid, None)
            return replace(spec, constraints=self._attaching(spec, spec.constraints)), ""
        verdict = self.volumes.judge(spec.namespace, spec.claims)
        if verdict.waits:
            self._waiting[view.uid] = view
            return spec, verdict.waits
        self._waiting.pop(view.uid, None)
        self._own[view.uid] = spec.constraints
        allowed = within(spec.constraints, verdict.terms)
        return replace(spec, constraints=self._attaching(spec, allowed)), ""

    def tolerate(self, uid: str, tolerations: tuple[Toleration, ...]) -> None:
        """Update a waiting pod's tolerations."""
        if uid in self._own:
            self._own[uid] = replace(self._own[uid], tolerations=tolerations)

    def _attaching(self, spec: PodSpec, constraints: Constraints) -> Constraints:
        attached = self.volumes.attached(spec.namespace, spec.claims)
        return constraints if attached == constraints.volumes else replace(
            constraints, volumes=attached
        )  # fmt: skip

    def on_node(self, seen: CsiNodeSeen, _: int) -> list[News]:
        """Apply a node's limits of volumes."""
        if seen.limits:
            self.limits[seen.name] = seen.limits
        else:
            self.limits.pop(seen.name, None)
        node = self._world.nodes.get(seen.name)
        if node is None or node.volume_limits == seen.limits:
            return []
        node.volume_limits = seen.limits
        return [NodeNews(node, "update")]

    def on_class(self, seen: StorageClassSeen, now_ns: int) -> list[News]:
        """Check again the pods whose claims wait for a storage class."""
        return self._judge_again(self.volumes.see_class(seen.name, seen.made_by), now_ns)

    def on_claim(self, seen: ClaimSeen, now_ns: int) -> list[News]:
        """Check again the pods of a claim."""
        return self._judge_again(self.volumes.see_claim(seen.name, seen.claim), now_ns)

    def on_volume(self, seen: VolumeSeen, now_ns: int) -> list[News]:
        """Check again the pods of a volume."""
        return self._judge_again(self.volumes.see_volume(seen.name, seen.volume), now_ns)

    def _judge_again(self, uids: list[str], now_ns: int) -> list[News]:
        news: list[News] = []
        for uid in uids:
            waiting = self._waiting.get(uid)
            if waiting is not None and uid not in self._world.pods:
                news += self._admit(waiting, now_ns)
            else:
                news += self.restated(uid)
        return news

    def restated(self, uid: str) -> list[News]:
        """Return a report of a pod whose constraints by volumes have changed."""
        pod = self._world.pods.get(uid)
        if pod is None:
            return []
        constraints = pod.spec.constraints
        if not pod.node:
            verdict = self.volumes.judge(pod.spec.namespace, pod.spec.claims)
            if verdict.waits:
                return []
            constraints = within(self._own.get(uid, constraints), verdict.terms)
        constraints = self._attaching(pod.spec, constraints)
        if constraints == pod.spec.constraints:
            return []
        pod.spec = replace(pod.spec, constraints=constraints)
        return [PodChanged(pod)]

    def to_make(self, pod: PodRecord) -> tuple[ToMake, ...] | None:
        """Return what to do for a pod's claims before it is bound; None if they are unavailable."""
        verdict = self.volumes.judge(pod.spec.namespace, pod.spec.claims)
        if not verdict.to_make and not verdict.waits:
            return ()
        node, namespace = self._world.nodes.get(pod.node), pod.spec.namespace
        if verdict.waits or node is None:
            return None
        found = [self.volumes.reserve(namespace, claim, node) for claim in verdict.to_make]
        if None in found:
            self.not_bound(pod)
            return None
        return tuple(item for item in found if item is not None)

    def not_bound(self, pod: PodRecord) -> None:
        """Free the volumes reserved for a pod that could not be bound."""
        for claim in pod.spec.claims:
            self.volumes.release((pod.spec.namespace, claim))

    def bound(self, pod: PodRecord) -> None:
        """Forget a bound pod's own constraints."""
        self._own.pop(pod.uid, None)

    def forget(self, uid: str) -> None:
        """Forget a pod that has ended or is gone."""
        self._waiting.pop(uid, None)
        self._own.pop(uid, None)
        self.volumes.forget(uid, *self._named.pop(uid, ("", ())))

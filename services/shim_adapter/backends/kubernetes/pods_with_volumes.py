"""Pods with volumes that are not bound yet: where they may be, and which wait for a volume."""

from collections.abc import Callable
from dataclasses import replace

from services.shim_adapter.backends.kubernetes.objects import PodView
from services.shim_adapter.backends.kubernetes.observed import ClaimSeen, VolumeSeen
from services.shim_adapter.backends.kubernetes.volumes import (
    ToMake,
    Volumes,
    within,
)
from services.shim_adapter.mirror.calls import News, PodChanged
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import PodRecord
from shared.messages.commands import PodSpec
from shared.messages.constraints import Constraints


class PodsWithVolumes:
    """``admit`` takes in a pod that waited for its volumes, and returns the news of it."""

    def __init__(self, world: World, admit: Callable[[PodView, int], list[News]]) -> None:
        self.volumes = Volumes()
        self._world = world
        self._admit = admit
        self._waiting: dict[str, PodView] = {}
        self._own: dict[str, Constraints] = {}  # without what volumes add

    def spec_of(self, view: PodView) -> tuple[PodSpec, str]:
        """Return a new pod's spec within what its volumes allow, and what it waits for ("")."""
        spec = view.spec
        assert spec is not None
        if not spec.claims or view.node:
            return spec, ""
        self.volumes.name(view.uid, spec.namespace, spec.claims)
        verdict = self.volumes.judge(spec.namespace, spec.claims)
        if verdict.waits:
            self._waiting[view.uid] = view
            return spec, verdict.waits
        self._waiting.pop(view.uid, None)
        self._own[view.uid] = spec.constraints
        return replace(spec, constraints=within(spec.constraints, verdict.terms)), ""

    def on_claim(self, seen: ClaimSeen, now_ns: int) -> list[News]:
        """Look again at the pods of a claim."""
        return self._judge_again(self.volumes.see_claim(seen.name, seen.claim), now_ns)

    def on_volume(self, seen: VolumeSeen, now_ns: int) -> list[News]:
        """Look again at the pods of a volume."""
        return self._judge_again(self.volumes.see_volume(seen.name, seen.volume), now_ns)

    def _judge_again(self, uids: list[str], now_ns: int) -> list[News]:
        news: list[News] = []
        for uid in uids:
            waiting, pod = self._waiting.get(uid), self._world.pods.get(uid)
            if pod is None and waiting is not None:
                news += self._admit(waiting, now_ns)
            elif pod is not None and not pod.node:
                verdict = self.volumes.judge(pod.spec.namespace, pod.spec.claims)
                own = within(self._own.get(uid, pod.spec.constraints), verdict.terms)
                if not verdict.waits and own != pod.spec.constraints:
                    pod.spec = replace(pod.spec, constraints=own)
                    news.append(PodChanged(pod))
        return news

    def to_make(self, pod: PodRecord) -> tuple[ToMake, ...] | None:
        """Return what is to be done on its node before a pod is bound; None: it is not there."""
        verdict = self.volumes.judge(pod.spec.namespace, pod.spec.claims)
        if not verdict.to_make and not verdict.waits:
            return ()
        node, namespace = self._world.nodes.get(pod.node), pod.spec.namespace
        if verdict.waits or node is None:
            return None
        found = [self.volumes.keep(namespace, claim, node) for claim in verdict.to_make]
        if None in found:
            self.not_bound(pod)
            return None
        return tuple(item for item in found if item is not None)

    def not_bound(self, pod: PodRecord) -> None:
        """Take in that a pod does not go where it was to go: nothing is kept for it there."""
        for claim in pod.spec.claims:
            self.volumes.keep_no_more((pod.spec.namespace, claim))

    def is_over(self, pod: PodRecord) -> None:
        """Hear no more of a pod's volumes: it is bound, or gone."""
        self._forget(pod.uid, pod.spec)

    def deleted(self, uid: str) -> None:
        """Forget a pod that is gone and waited for its volumes."""
        view = self._waiting.pop(uid, None)
        if view is not None and view.spec is not None:
            self._forget(uid, view.spec)

    def _forget(self, uid: str, spec: PodSpec) -> None:
        self.volumes.forget(uid, spec.namespace, spec.claims)
        self._own.pop(uid, None)

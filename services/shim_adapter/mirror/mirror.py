"""The mirror: what the resource manager reports becomes asks, what the core decides becomes calls.

Rule 1: an application with task groups gets its placeholders first; its real pods are held back
        until every group's placeholders are bound (contract section 3.3, steps 2 and 5).
Rule 2: a pod whose deletion the core decided is confirmed with the core's own termination type
        once it is gone, and a confirmation is never confirmed.
Rule 3: the resource manager is the truth: ``sync`` says all of it under a new epoch, and decisions
        of a lower epoch are refused.
"""

from collections.abc import Callable
from typing import Any

from services.shim_adapter.mirror.asks import (
    NODE_ACTIONS,
    application_request,
    ask_of,
    node_info,
)
from services.shim_adapter.mirror.calls import (
    BindPod,
    BindRefused,
    Call,
    CreatePod,
    DeletePod,
    FailPod,
    News,
    NodeNews,
    PodAdded,
    PodEnded,
    PodGone,
)
from services.shim_adapter.mirror.recovery import everything, is_to_be_asked, waiting_pods
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import (
    ApplicationPhase,
    ApplicationRecord,
    PodPhase,
    PodRecord,
)
from services.shim_adapter.translation.placeholders import placeholder_pod
from shared.messages.envelope import CORE, Outgoing
from shared.messages.interface import (
    AcceptedApplication,
    Allocation,
    AllocationAsk,
    AllocationAskRelease,
    AllocationRelease,
    RejectedAllocation,
    RejectedApplication,
    RemoveApplicationRequest,
    TerminationType,
    UpdatedApplication,
    UpdateRequest,
    UpdateResponse,
)
from shared.model.ids import derived_id
from shared.model.states import ApplicationState

Reaction = tuple[list[Call], list[Outgoing]]


class ClusterMirror:
    """One resource manager's mirror. ``world`` is the resource manager's truth."""

    def __init__(self, world: World, rm_id: str) -> None:
        self.world = world
        self.rm_id = rm_id
        self.refused_decisions = 0
        self._asked: dict[str, None] = {}  # pods that the core has an ask for
        self._bound: dict[tuple[str, str], int] = {}  # (application, group) -> placeholders bound
        self._calls: list[Call] = []
        self._outgoing: list[Outgoing] = []
        self._count_bound()

    # --- the way in -----------------------------------------------------------------------------

    def on_news(self, news: News) -> Reaction:
        """Take in what the resource manager reports."""
        match news:
            case NodeNews():
                self._on_node(news)
            case PodAdded():
                self._on_pod(news.pod)
            case PodEnded():
                self._on_pod_ended(news.pod)
            case PodGone():
                self._on_pod_gone(news.pod)
            case BindRefused():
                self._on_bind_refused(news)
        return self._taken()

    def on_application(self, application: ApplicationRecord) -> Reaction:
        """Announce an application that was made before any of its pods."""
        self._send(new_applications=(application_request(application),))
        return self._taken()

    def on_response(self, response: UpdateResponse, epoch: int) -> Reaction:
        """Carry out what the core decided, section by section; a lower epoch is refused."""
        if epoch < self.world.epoch:
            self.refused_decisions += 1
            return [], []
        handlers: tuple[tuple[tuple[Any, ...], Callable[[Any], None]], ...] = (
            (response.accepted_applications, self._on_accepted),
            (response.rejected_applications, self._on_rejected),
            (response.rejected_allocations, self._on_ask_rejected),
            (response.new_allocations, self._on_allocation),
            (response.released_asks, self._on_ask_released),
            (response.released_allocations, self._on_released),
            (response.updated_applications, self._on_updated),
        )
        for items, handler in handlers:
            for item in items:
                handler(item)
        return self._taken()

    def remove_application(self, application: ApplicationRecord) -> Reaction:
        """Have done with an application that has no pods: the core ends it at once."""
        application.phase = ApplicationPhase.ENDED
        self.world.touch_application(application)
        self._send(remove_applications=(RemoveApplicationRequest(application.application_id),))
        return self._taken()

    def sync(self) -> list[Outgoing]:
        """Say everything that exists, under the next epoch (architecture section 4, step 2)."""
        world = self.world
        world.next_epoch()
        self._asked.clear()
        waiting = waiting_pods(world)
        self._asked.update(dict.fromkeys(pod.uid for pod in waiting))
        return [self._to_core(message) for message in everything(world, self.rm_id, waiting)]

    def _count_bound(self) -> None:
        for pod in self.world.all_pods():
            if pod.spec.placeholder and pod.node and not pod.has_ended:
                self._count(pod, 1)

    # --- from the resource manager --------------------------------------------------------------

    def _on_node(self, news: NodeNews) -> None:
        info = node_info(news.node, NODE_ACTIONS[news.action], self.rm_id)
        self._send(nodes=(info,))

    def _on_pod(self, pod: PodRecord) -> None:
        application = self.world.applications.get(pod.spec.application_id)
        if application is None or not application.is_live:
            application = self.world.application_of(pod)
            self._send(new_applications=(application_request(application),))
        if is_to_be_asked(application, pod):
            self._send(asks=(self._ask(pod),))

    def _on_pod_ended(self, pod: PodRecord) -> None:
        if pod.node:
            self._forget_bound(pod)
            self._release(pod, TerminationType.STOPPED_BY_RM, "task completed")
        else:
            self._release_ask(pod)

    def _on_pod_gone(self, pod: PodRecord) -> None:
        if pod.has_ended and not pod.release:
            return
        if pod.node:
            self._forget_bound(pod)
            why = TerminationType(pod.release) if pod.release else TerminationType.STOPPED_BY_RM
            self._release(pod, why, "pod terminated")
        else:
            self._release_ask(pod)

    def _on_bind_refused(self, news: BindRefused) -> None:
        """Give an allocation back and ask anew: the node went, or would not take the pod."""
        self._release(news.pod, TerminationType.STOPPED_BY_RM, news.reason)
        self._send(asks=(self._ask(news.pod),))

    # --- from the core --------------------------------------------------------------------------

    def _on_accepted(self, accepted: AcceptedApplication) -> None:
        application = self.world.applications.get(accepted.application_id)
        if application is None or application.phase is not ApplicationPhase.NEW:
            return
        is_gang = bool(application.task_groups) and not application.is_gang_over
        application.phase = ApplicationPhase.RESERVING if is_gang else ApplicationPhase.RUNNING
        self.world.touch_application(application)
        if is_gang:
            self._make_placeholders(application)
        else:
            self._ask_for_real_pods(application)

    def _make_placeholders(self, application: ApplicationRecord) -> None:
        """Create what is missing of every group's placeholders, in the order of the groups."""
        name = application.application_id
        existing: dict[str, int] = {}
        for pod in self.world.pods_of(name):
            if pod.spec.placeholder and not pod.has_ended:
                made = pod.spec.task_group_name
                existing[made] = existing.get(made, 0) + 1
        for group in application.task_groups:
            for _ in range(existing.get(group.name, 0), group.min_member):
                application.placeholders_made += 1
                cause = f"{name}/{application.submission}/{application.placeholders_made}"
                spec = placeholder_pod(application, group, cause)
                self._calls.append(CreatePod(derived_id(cause, 0), spec))

    def _on_rejected(self, rejected: RejectedApplication) -> None:
        application = self.world.applications.get(rejected.application_id)
        if application is None or application.phase is not ApplicationPhase.NEW:
            return
        application.phase = ApplicationPhase.REJECTED
        application.message = rejected.reason
        self.world.touch_application(application)
        self._fail_unbound(application, "ApplicationRejected", rejected.reason)

    def _on_ask_rejected(self, rejected: RejectedAllocation) -> None:
        pod = self.world.pods.get(rejected.allocation_key)
        if pod is not None and not pod.node and rejected.allocation_key in self._asked:
            del self._asked[pod.uid]
            self._calls.append(FailPod(pod.uid, "AskRejected", rejected.reason))

    def _on_allocation(self, allocation: Allocation) -> None:
        pod = self.world.pods.get(allocation.allocation_key)
        if pod is None or pod.node or pod.has_ended:
            return
        if pod.deletion_ns:
            return  # its end is on the way to the core
        self._calls.append(BindPod(pod.uid, allocation.node_id))

    def bound(self, pod: PodRecord, now_ns: int) -> Reaction:
        """Take in that a pod was bound; the last placeholder of a gang lets its real pods go."""
        application = self.world.applications.get(pod.spec.application_id)
        if application is not None and pod.spec.placeholder:
            self._count(pod, 1)
            if not application.reservation_start_ns:
                application.reservation_start_ns = now_ns
                self.world.touch_application(application)
            if application.phase is ApplicationPhase.RESERVING and self._is_whole(application):
                application.phase = ApplicationPhase.RUNNING
                self.world.touch_application(application)
                self._ask_for_real_pods(application)
        return self._taken()

    def _on_ask_released(self, release: AllocationAskRelease) -> None:
        pod = self.world.pods.get(release.allocation_key)
        if pod is None or pod.node:
            return
        self._asked.pop(pod.uid, None)
        if pod.spec.placeholder:
            self._calls.append(DeletePod(pod.uid, "", release.message))

    def _on_released(self, release: AllocationRelease) -> None:
        """Delete a pod because the core decided so; what we stopped ourselves is only echoed."""
        pod = self.world.pods.get(release.allocation_key)
        if release.termination_type is TerminationType.STOPPED_BY_RM:
            return
        if pod is None:
            self._send(releases=(release,))
        elif not pod.node:
            self._release(pod, release.termination_type, "pod was not bound")
            self._calls.append(DeletePod(pod.uid, "", release.message))
        else:
            self._calls.append(DeletePod(pod.uid, release.termination_type, release.message))

    def _on_updated(self, updated: UpdatedApplication) -> None:
        application = self.world.applications.get(updated.application_id)
        if application is None or not application.is_live:
            return
        application.core_state = updated.state
        application.core_state_ns = updated.state_transition_timestamp_ns
        self.world.touch_application(application)
        if updated.state == ApplicationState.RESUMING:
            application.phase = ApplicationPhase.RESUMING
            application.is_gang_over = True
        elif updated.state == ApplicationState.ACCEPTED:
            if application.phase is ApplicationPhase.RESUMING:
                application.phase = ApplicationPhase.RUNNING
                self._ask_for_real_pods(application)
        elif updated.state == ApplicationState.FAILING:
            application.phase = ApplicationPhase.FAILING
            application.message = updated.message
            self._fail_unbound(
                application,
                updated.message,
                "Scheduling has timed out due to insufficient resources",
            )
        elif updated.state in (ApplicationState.COMPLETED, ApplicationState.FAILED):
            self._on_core_ended(application)

    def _on_core_ended(self, application: ApplicationRecord) -> None:
        """End an application, unless a pod has come since: then it is submitted anew."""
        application.phase = ApplicationPhase.ENDED
        left = [pod for pod in self.world.pods_of(application.application_id) if _is_waiting(pod)]
        for pod in left:
            self._asked.pop(pod.uid, None)
        if left and application.core_state == ApplicationState.COMPLETED:
            again = self.world.application_of(left[0])
            self._send(new_applications=(application_request(again),))

    # --- asking ---------------------------------------------------------------------------------

    def _ask_for_real_pods(self, application: ApplicationRecord) -> None:
        asks = tuple(
            self._ask(pod)
            for pod in self.world.pods_of(application.application_id)
            if is_to_be_asked(application, pod) and pod.uid not in self._asked
        )
        if asks:
            self._send(asks=asks)

    def _ask(self, pod: PodRecord) -> AllocationAsk:
        self._asked[pod.uid] = None
        return ask_of(pod, originator=self.world.is_originator(pod))

    def _is_whole(self, application: ApplicationRecord) -> bool:
        return all(
            self._bound.get((application.application_id, group.name), 0) >= group.min_member
            for group in application.task_groups
        )

    # --- releasing ------------------------------------------------------------------------------

    def _fail_unbound(self, application: ApplicationRecord, reason: str, message: str) -> None:
        for pod in self.world.pods_of(application.application_id):
            if not pod.node and not pod.has_ended:
                self._asked.pop(pod.uid, None)
                if pod.spec.placeholder:
                    self._calls.append(DeletePod(pod.uid, "", reason))
                else:
                    self._calls.append(FailPod(pod.uid, reason, message))

    def _release(self, pod: PodRecord, why: TerminationType, message: str) -> None:
        self._asked.pop(pod.uid, None)
        release = AllocationRelease(
            pod.spec.application_id,
            pod.uid,
            why,
            message=message,
            has_succeeded=pod.phase is PodPhase.SUCCEEDED,
        )
        self._send(releases=(release,))

    def _release_ask(self, pod: PodRecord) -> None:
        if self._asked.pop(pod.uid, pod) is None:
            why = TerminationType.STOPPED_BY_RM
            self._send(ask_releases=(AllocationAskRelease(pod.spec.application_id, pod.uid, why),))

    def _forget_bound(self, pod: PodRecord) -> None:
        if pod.spec.placeholder:
            self._count(pod, -1)

    def _count(self, pod: PodRecord, change: int) -> None:
        key = (pod.spec.application_id, pod.spec.task_group_name)
        count = self._bound.get(key, 0) + change
        if count > 0:
            self._bound[key] = count
        else:
            self._bound.pop(key, None)

    # --- sending --------------------------------------------------------------------------------

    def _to_core(self, message: object) -> Outgoing:
        return Outgoing(CORE, message, epoch=self.world.epoch)

    def _send(self, **sections: Any) -> None:
        self._outgoing.append(self._to_core(UpdateRequest(self.rm_id, **sections)))

    def _taken(self) -> Reaction:
        calls, self._calls = self._calls, []
        outgoing, self._outgoing = self._outgoing, []
        return calls, outgoing


def _is_waiting(pod: PodRecord) -> bool:
    return not (pod.node or pod.has_ended or pod.deletion_ns or pod.spec.placeholder)

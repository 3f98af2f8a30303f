"""The phases of an application: announced, reserving, running, resuming, failing, ended.

Transitions are caused by reports of the resource manager or decisions of the core (``mirror.py``);
this module has the resulting actions.
"""

from services.shim_adapter.mirror.asks import application_request, forced
from services.shim_adapter.mirror.calls import GANG_TIMED_OUT, DeletePod
from services.shim_adapter.mirror.gangs import in_place_of
from services.shim_adapter.mirror.moves import Moves
from services.shim_adapter.records import (
    BEFORE_ITS_PODS,
    ApplicationPhase,
    ApplicationRecord,
    PodRecord,
)
from shared.messages.interface import (
    AllocationAskRelease,
    AllocationRelease,
    RemoveApplicationRequest,
    TerminationType,
    UpdatedApplication,
)
from shared.model.states import ApplicationState

_CARRIES_ON = (ApplicationState.RUNNING, ApplicationState.COMPLETING)
_KNOWN_BY_NAME = ("", ApplicationState.NEW)  # states without any ask
_WHY_FAILED = {
    GANG_TIMED_OUT: "Scheduling has timed out due to insufficient resources",
    "ExecutionTimeout": "its application has run for as long as it may",
}


class Phases(Moves):
    """The actions for an application, from its announcement to its end."""

    def _announce(self, application: ApplicationRecord, *, has_place: bool = False) -> None:
        """Announce an application; one whose first pod has its node already is not refused.

        Source: docs/rules/pods.md#tags.
        """
        request = application_request(application)
        request = forced(request) if has_place else request
        self._send(application.partition, new_applications=(request,))

    def _remove(self, application: ApplicationRecord) -> None:
        removed = RemoveApplicationRequest(application.application_id, application.partition)
        self._send(application.partition, remove_applications=(removed,))

    # --- its gang -------------------------------------------------------------------------------

    def _start_if_whole(self, application: ApplicationRecord) -> None:
        """Ask for a gang's real pods once every placeholder is bound."""
        if application.phase is ApplicationPhase.RESERVING and self._bound.is_whole(application):
            application.phase = ApplicationPhase.RUNNING
            self.world.touch_application(application)
            self._report(application, "GangReservationComplete", "every placeholder is bound")
            self._clear_the_way(application)
            self._ask_for_pods(application)

    def _report_reserved(self, application: ApplicationRecord, name: str) -> None:
        """Write an event when the last member of a task group has its place."""
        bound = self._bound.count(application, name)
        if any(
            group.name == name and group.min_member == bound for group in application.task_groups
        ):
            text = f"the {bound} placeholders of task group {name} are allocated"
            self._report(application, "PlaceholderAllocated", text)

    def _carry_on(self, pod: PodRecord, release: AllocationRelease | AllocationAskRelease) -> None:
        """Continue without the gang if the core, which considered it whole, stops waiting for it.

        A bind failed later, or a node was removed: the core releases the placeholders at their
        timeout and continues (docs/rules/gangs.md#timeout), and the rest of the gang will never be
        whole.
        """
        application = self.world.applications.get(pod.spec.application_id)
        if (
            application is None
            or not pod.spec.placeholder
            or application.phase is not ApplicationPhase.RESERVING
            or application.core_state not in _CARRIES_ON
            or release.termination_type is not TerminationType.TIMEOUT
        ):
            return
        application.is_gang_over = True
        application.phase = ApplicationPhase.RUNNING
        self._cancel_creates(application)
        self.world.touch_application(application)
        text = f"Application {application.application_id} goes on as non-gang application"
        self._report(application, "GangSchedulingFailed", text, is_warning=True)
        self._ask_for_pods(application)

    def _follow(self, application: ApplicationRecord, updated: UpdatedApplication) -> None:
        """Act on an application's state: continue without the gang, ask for its pods, or fail."""
        if updated.state == ApplicationState.RESUMING:
            application.phase = ApplicationPhase.RESUMING
            application.is_gang_over = True
            self._cancel_creates(application)
            self._report_timeout(application)
            text = (
                f"Application {application.application_id} resuming as non-gang application (SOFT)"
            )
            self._report(application, "GangSchedulingFailed", text, is_warning=True)
        elif updated.state == ApplicationState.ACCEPTED:
            if application.phase is ApplicationPhase.RESUMING:
                application.phase = ApplicationPhase.RUNNING
                self._ask_for_pods(application)
                if self._is_deserted(application):
                    self._end(application)
        elif updated.state == ApplicationState.FAILING:
            if application.phase is ApplicationPhase.FAILING:
                return  # repeated by a recovered core; newer pods wait
            application.phase = ApplicationPhase.FAILING
            self._cancel_creates(application)
            application.message = updated.message
            if updated.message == GANG_TIMED_OUT:
                self._report_timeout(application)
            text = _WHY_FAILED.get(updated.message, f"its application failed: {updated.message}")
            self._fail_unbound(application, updated.message, text)

    def _report_timeout(self, application: ApplicationRecord) -> None:
        text = "not every placeholder of its gang was allocated in time"
        self._report(application, "PlaceholderTimeOut", text, is_warning=True)

    # --- its end --------------------------------------------------------------------------------

    def _is_deserted(self, application: ApplicationRecord) -> bool:
        """Whether every real pod that an application was created by is gone."""
        name = application.application_id
        return not (application.is_announced or self.world.has_waiting_pod(name))

    def _after_pod(self, pod: PodRecord) -> None:
        """Follow up on a pod that has ended or is gone: its application may end with it."""
        self._noted.pop(pod.uid, None)
        self._displaced.pop(pod.uid, None)
        self._nominated.pop(pod.uid, None)
        application = self.world.applications.get(pod.spec.application_id)
        if application is None:
            return
        if application.phase in BEFORE_ITS_PODS and self._is_deserted(application):
            self._end(application)
        elif application.phase is ApplicationPhase.ENDING:
            self._finish(application)
        elif pod.spec.placeholder:
            self._calls += in_place_of(self.world, application, pod)

    def _end(self, application: ApplicationRecord) -> None:
        """End an application whose pods are gone, and delete its placeholders."""
        application.phase = ApplicationPhase.ENDING
        application.is_gang_over = True
        self._cancel_creates(application)
        self.world.touch_application(application)
        for pod in self.world.pods_of(application.application_id):
            if pod.spec.placeholder and not (pod.has_ended or pod.deletion_ns):
                if not pod.node:
                    self._release_ask(pod)
                self._calls.append(DeletePod(pod.uid, "", "its application was deleted"))
        self._finish(application)

    def _finish(self, application: ApplicationRecord) -> None:
        """Let the core end an application once none of its pods is on a node.

        An application that the core has accepted completes there by itself. It is removed if it was
        never asked for or resumes without a pod to ask for, or if a pod has arrived since, which
        starts it again.
        """
        name = application.application_id
        if self.world.holds_a_place(name):
            return
        if self._completes_by_itself(application) and not self.world.has_waiting_pod(name):
            return
        self._remove(application)
        self.world.touch_application(application)
        self._on_core_ended(application)

    def _completes_by_itself(self, application: ApplicationRecord) -> bool:
        """Whether the core will complete the application, because it had asks there."""
        name = application.application_id
        if application.core_state == ApplicationState.RESUMING:
            return False
        return application.core_state not in _KNOWN_BY_NAME or any(
            release.application_id == name for release in self._unconfirmed.values()
        )

    def _on_core_ended(self, application: ApplicationRecord) -> None:
        """End an application; submit it again if a pod has arrived since."""
        application.phase = ApplicationPhase.ENDED
        left = [
            pod
            for pod in self.world.pods_of(application.application_id)
            if _is_waiting(pod) and pod.uid not in self._failed
        ]
        for pod in left:
            self._asked.pop(pod.uid, None)
        if left:
            self._announce(self.world.application_of(left[0]))


def _is_waiting(pod: PodRecord) -> bool:
    return not (pod.node or pod.has_ended or pod.deletion_ns or pod.spec.placeholder)

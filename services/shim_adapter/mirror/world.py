"""The world: every node, pod and application of the resource manager, with indexes."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from services.shim_adapter.mirror.kept import KeptAnswers, KeptUsages
from services.shim_adapter.mirror.on_nodes import PodsOnNodes
from services.shim_adapter.records import (
    ApplicationPhase,
    ApplicationRecord,
    NodeRecord,
    PodRecord,
    Proposal,
)
from services.shim_adapter.translation.task_groups import POLICY_PARAMETERS, TASK_GROUPS, job_tag
from shared.messages.commands import PodSpec
from shared.messages.protocol import MAX_EPOCH
from shared.model.gpus import Devices
from shared.model.names import DEFAULT_PARTITION
from shared.model.resources import ResourceView
from shared.model.scheduler_settings import DISABLED, REMAKE_PLACEHOLDERS, named

PULL_SECRETS = "imagePullSecrets"  # an application's tag: for its placeholders
_MOST_ABOVE = 2**32  # epochs beyond MAX_EPOCH, one by one; a core above them is not followed
MAX_APPLICATIONS = 10_000  # beyond it the ended ones go, the oldest first


class World:
    """The resource manager's state in memory; it records what has changed since the last save."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeRecord] = {}
        self.on_nodes = PodsOnNodes(self.nodes)
        self.pods: dict[str, PodRecord] = {}
        self.applications: dict[str, ApplicationRecord] = {}
        self.epoch = 0  # the highest one begun
        self.epochs: dict[str, int] = {}  # current epoch by partition
        self.partitions: dict[str, None] = {}  # of queues.yaml ({}: no core has validated it yet)
        self.dropped: dict[str, None] = {}  # removed from it, with live applications
        self.config = ""  # of the next recovery
        self.last_good_config = ""  # the previous valid one ("": unknown)
        self.is_config_good = False  # whether a core has accepted ``config``
        self.proposals: list[Proposal] = []  # not validated yet
        self.held_back: Proposal | None = None
        self.scheduler_settings: dict[str, str] = {}
        self.has_gangs = True  # whether new applications use gang scheduling
        self.are_confirmations_held = False  # of releases, by a command
        self.namespace_tags: dict[str, Mapping[str, str]] = {}  # queue settings by namespace
        self.submissions = 0
        self.pods_made = 0
        self.answers = KeptAnswers()
        self.usage = KeptUsages()
        self.changed_nodes: dict[str, None] = {}
        self.changed_pods: dict[str, None] = {}
        self.changed_applications: dict[str, None] = {}
        self.is_meta_changed = False
        self._by_application: dict[str, dict[str, PodRecord]] = {}
        self._by_name: dict[tuple[str, str], str] = {}
        self._originators: dict[str, str] = {}
        self.binding: dict[str, None] = {}  # pods with unconfirmed binds, by uid

    def let_go(self) -> None:
        """Empty the world: another one is loaded in its place."""
        vars(self).update(vars(World()))

    # --- reading --------------------------------------------------------------------------------

    def pods_of(self, application_id: str) -> list[PodRecord]:
        """Return an application's pods in the order of their creation."""
        return list(self._by_application.get(application_id, {}).values())

    def all_pods(self) -> Iterable[PodRecord]:
        """Return every pod."""
        return self.pods.values()

    def pod_named(self, namespace: str, name: str) -> PodRecord | None:
        """Return a pod by name, or None."""
        return self.pods.get(self._by_name.get((namespace, name), ""))

    def find_pod(self, name: str) -> PodRecord | None:
        """Return a pod by its uid, else one of this name in any namespace; no foreign pods."""
        pod = self.pods.get(name)
        if pod is None:
            uids = (uid for (_, own), uid in self._by_name.items() if own == name)
            pod = next((self.pods[uid] for uid in uids if not self.pods[uid].spec.foreign), None)
        return None if pod is None or pod.spec.foreign else pod

    def originator(self, application_id: str) -> PodRecord | None:
        """Return an application's first real pod, if it exists."""
        return self.pods.get(self._originators.get(application_id, ""))

    def is_originator(self, pod: PodRecord) -> bool:
        """Whether a pod is its application's first real one."""
        return self._originators.get(pod.spec.application_id) == pod.uid

    def has_waiting_pod(self, application_id: str) -> bool:
        """Whether an application has a real pod that has not ended and is not being deleted."""
        pods = self._by_application.get(application_id, {}).values()
        return any(not (pod.spec.placeholder or pod.has_ended or pod.deletion_ns) for pod in pods)

    def holds_a_place(self, application_id: str) -> bool:
        """Whether a pod of an application is on a node and has not ended."""
        pods = self._by_application.get(application_id, {}).values()
        return any(pod.node and not pod.has_ended for pod in pods)

    # --- writing --------------------------------------------------------------------------------

    def next_epoch(self, known: int = 0, partition: str = DEFAULT_PARTITION) -> None:
        """Begin a partition's next epoch; decisions of earlier ones are refused from now on.

        It is above the epoch ``known`` to the requesting core, up to a limit against invalid
        values.
        """
        if known <= MAX_EPOCH + _MOST_ABOVE:
            self.epoch = max(self.epoch, known)
        self.epoch += 1
        self.epochs[partition] = self.epoch
        self.is_meta_changed = True

    def set_partitions(self, names: tuple[str, ...]) -> None:
        """Set the partitions; applications in a removed one keep it until they end."""
        self.partitions = dict.fromkeys(names)
        self.dropped = {
            application.partition: None
            for application in self.applications.values()
            if application.partition not in self.partitions
            and application.is_live
            and application.phase is not ApplicationPhase.NEW
        }
        self._forget_epochs()
        self.is_meta_changed = True

    def forget_ended(self) -> None:
        """Forget removed partitions without live applications."""
        if not self.dropped:
            return
        live = {item.partition for item in self.applications.values() if item.is_live}
        self.dropped = {name: None for name in self.dropped if name in live}
        self._forget_epochs()

    def _forget_epochs(self) -> None:
        """Forget the epochs of removed partitions; the highest epoch fences them."""
        known = {*self.partition_names}
        self.epochs = {name: epoch for name, epoch in self.epochs.items() if name in known}

    def set_config(self, config: str, last_good: str = "") -> None:
        """Set a queue configuration that no core has validated yet."""
        self.config, self.last_good_config = config, last_good
        self.is_config_good = False
        self.is_meta_changed = True

    def accept_config(self, config: str) -> None:
        """Store a queue configuration that the core has accepted, and the previous good one."""
        if config != self.config:
            if self.is_config_good:
                self.last_good_config = self.config
            self.config = config
        self.is_config_good = True
        self.is_meta_changed = True

    @property
    def is_preset_yunikorn(self) -> bool:
        """Whether the scheduler settings have ``preset: yunikorn``."""
        return self.scheduler_settings.get("preset") == "yunikorn"

    @property
    def remakes_placeholders(self) -> bool:
        """Whether a placeholder that is lost while its gang reserves is created again."""
        settings = named(self.scheduler_settings).with_preset()
        return settings.get(REMAKE_PLACEHOLDERS) != DISABLED

    @property
    def partition_names(self) -> tuple[str, ...]:
        """The scheduled partitions: those of the file, and removed ones until they end."""
        return (*(self.partitions or [DEFAULT_PARTITION]), *self.dropped)

    def epoch_of(self, partition: str) -> int:
        """Return a partition's epoch, or the highest if it has none."""
        return self.epochs.get(partition, self.epoch)

    def partition_of(self, application_id: str) -> str:
        """Return the partition of an application; the default one if it is unknown."""
        application = self.applications.get(application_id)
        return DEFAULT_PARTITION if application is None else application.partition

    def partition_for(self, name: str) -> str | None:
        """Return whose core receives items of a named partition; None while that is unknown.

        The default partition's core receives, and rejects, those of an unknown partition.
        """
        if name == DEFAULT_PARTITION or name in self.partitions or name in self.dropped:
            return name
        return DEFAULT_PARTITION if self.partitions else None

    @property
    def good_config(self) -> str:
        """The newest valid queue configuration ("": none is known)."""
        return self.config if self.is_config_good else self.last_good_config

    def changes(self) -> int:
        """Return how many records have changed since the last save."""
        return (
            len(self.changed_nodes)
            + len(self.changed_pods)
            + len(self.changed_applications)
            + len(self.answers.changed)
            + len(self.usage.changed)
        )

    def forget_changes(self) -> None:
        """Forget which records have changed: they were saved, or are never saved."""
        self.changed_nodes.clear()
        self.changed_pods.clear()
        self.changed_applications.clear()
        self.answers.changed.clear()
        self.usage.changed.clear()
        self.is_meta_changed = False

    def hold_confirmations(self, *, held: bool) -> None:
        """Set whether confirmations of released pods are held back."""
        self.are_confirmations_held = held
        self.is_meta_changed = True

    def set_namespace(self, name: str, tags: Mapping[str, str]) -> None:
        """Store a namespace's settings for the queues of its future applications."""
        self.namespace_tags[name] = tags
        self.is_meta_changed = True

    def add_pod(self, pod: PodRecord) -> None:
        """Add a pod."""
        spec = pod.spec
        self.pods[pod.uid] = pod
        self._by_name[spec.namespace, spec.name] = pod.uid
        if not spec.foreign:
            self._by_application.setdefault(spec.application_id, {})[pod.uid] = pod
            if not spec.placeholder:
                self._originators.setdefault(spec.application_id, pod.uid)
        if pod.node and not pod.has_ended:
            self.on_nodes.add(pod)
        self.changed_pods[pod.uid] = None

    def assign(self, pod: PodRecord, node: str, devices: Devices = ()) -> None:
        """Put a pod on a node, with devices there; node "" takes it back."""
        self.on_nodes.remove(pod)
        pod.node, pod.devices = node, devices
        if node:
            self.on_nodes.add(pod)
        self.changed_pods[pod.uid] = None

    def resize(self, pod: PodRecord, resource: ResourceView) -> None:
        """Change a pod's resource."""
        is_there = self.on_nodes.has(pod)
        if is_there:
            self.on_nodes.remove(pod)
        pod.spec = replace(pod.spec, resource=resource)
        if is_there:
            self.on_nodes.add(pod)
        self.changed_pods[pod.uid] = None

    def drop_pod(self, pod: PodRecord) -> None:
        """Remove a pod."""
        spec = pod.spec
        self.pods.pop(pod.uid, None)
        self.on_nodes.remove(pod)
        if self._by_name.get((spec.namespace, spec.name)) == pod.uid:
            del self._by_name[spec.namespace, spec.name]
        siblings = self._by_application.get(spec.application_id, {})
        siblings.pop(pod.uid, None)
        if not siblings:
            self._by_application.pop(spec.application_id, None)
        if self._originators.get(spec.application_id) == pod.uid:
            del self._originators[spec.application_id]
        self.changed_pods[pod.uid] = None

    def touch_pod(self, pod: PodRecord) -> None:
        """Mark a pod as changed."""
        self.changed_pods[pod.uid] = None

    def touch_node(self, name: str) -> None:
        """Mark a node as changed or removed."""
        self.changed_nodes[name] = None

    def touch_application(self, application: ApplicationRecord) -> None:
        """Mark an application as changed."""
        self.changed_applications[application.application_id] = None

    def add_application(self, application: ApplicationRecord) -> ApplicationRecord:
        """Add an application, replacing an ended one of the same id."""
        self.applications.pop(application.application_id, None)
        self.applications[application.application_id] = application
        if len(self.applications) > MAX_APPLICATIONS:
            self._drop_an_ended_one()
        self.changed_applications[application.application_id] = None
        self.is_meta_changed = True
        return application

    def _drop_an_ended_one(self) -> None:
        """Remove the oldest application that has ended and has no pods left."""
        for name, application in self.applications.items():
            if not application.is_live and name not in self._by_application:
                del self.applications[name]
                self.changed_applications[name] = None
                return

    def next_submission(self) -> int:
        """Return a number for a new submission of an application."""
        self.submissions += 1
        return self.submissions

    def note_refusal(self, uid: str, now_ns: int) -> None:
        """Record since when a gang waits for room on the nodes, for a recovering core."""
        pod = self.pods.get(uid)
        if pod is None or not pod.spec.placeholder:
            return
        application = self.applications.get(pod.spec.application_id)
        if application is not None and not application.refused_ns:
            application.refused_ns = now_ns
            self.touch_application(application)

    def application_of(self, pod: PodRecord) -> ApplicationRecord:
        """Create the application of a pod; its first pod defines it."""
        application = application_from_pod(pod.spec, self.next_submission(), pod.created_ns)
        tags = self.namespace_tags.get(application.namespace, {})
        secrets = {PULL_SECRETS: ",".join(pod.spec.pull_secrets)} if pod.spec.pull_secrets else {}
        application.tags = {**tags, **secrets, **job_tag(pod.spec.annotations)}
        application.is_gang_over = not self.has_gangs
        return self.add_application(application)


def application_from_pod(spec: PodSpec, submission: int, created_ns: int) -> ApplicationRecord:
    """Return the application record that an application's first pod defines."""
    return ApplicationRecord(
        application_id=spec.application_id,
        submission=submission,
        queue_name=spec.queue_name,
        namespace=spec.namespace,
        partition=spec.partition,
        user=spec.user,
        groups=spec.groups,
        style=spec.style,
        placeholder_timeout_seconds=spec.placeholder_timeout_seconds,
        task_groups=spec.task_groups,
        gang=spec.gang,
        created_ns=created_ns,
        priority=spec.priority,
        priority_class=spec.priority_class,
        gang_annotations={
            key: spec.annotations[key]
            for key in (TASK_GROUPS, POLICY_PARAMETERS)
            if key in spec.annotations
        },
        message=spec.task_groups_error,
    )

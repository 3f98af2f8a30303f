"""The scenario file's format, checked key by key: every mistake has a file, a line and a key.

Unknown keys are errors everywhere.
"""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from services.cli.files import text_of
from services.cli.node_entries import NodeEntry, TaintStep, quantities
from services.cli.snapshot_file import Snapshot, SnapshotError, read_snapshot
from services.cli.yaml_file import Inline, YamlFileError, one_document, write_inline
from services.core.plugins import find_plugin
from services.core.scheduler.model.settings import (
    ACTIONS,
    GROWTHS,
    MAX_NODE_SCORE_WINDOW,
    MAY_BE_NAMED,
    NODE_SCORE_WINDOW,
    SURPLUSES,
    VICTIM_ORDERS,
    YOUNGEST,
    YUNIKORN,
    refused_actions,
    refused_value,
)
from services.shim_adapter.queue_file import queue_file
from services.shim_adapter.translation.constraints import parse_constraints
from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.gpu_shares import over_devices, with_share
from shared.messages.constraints import Constraints
from shared.model.duration import parse_go_duration
from shared.model.event_codes import ChangeDetail
from shared.model.names import DEFAULT_PARTITION
from shared.model.resources import Resource, ResourceView
from shared.model.scheduler_settings import (
    BACKFILLS,
    DISABLED,
    HEADS,
    PRESETS,
    RESERVATIONS,
    named,
)
from shared.model.units import NANOS_PER_MILLI, NANOS_PER_SECOND
from shared.queueconfig import QueueConfigError

MAX_FILE_BYTES = 2_000_000
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS_NS = {
    "ms": NANOS_PER_MILLI,
    "s": NANOS_PER_SECOND,
    "m": 60 * NANOS_PER_SECOND,
    "h": 3600 * NANOS_PER_SECOND,
}
PodState = Literal["Pending", "Running", "Succeeded", "Failed", "Preempted", "Deleted"]


class ScenarioError(ValueError):
    """A scenario file is malformed; the message has file, line, key and what was expected."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Resources(_Strict):
    @field_validator("capacity", "requests", "minResource", mode="before", check_fields=False)
    @classmethod
    def _parse(cls, value: Any) -> Any:
        return quantities(value)


class TolerationStep(_Strict):
    """A toleration of a pod or a task group."""

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: str = ""
    tolerationSeconds: int | None = None  # noqa: N815 - the file's own names


class NodeStep(_Resources):
    """A node that is added, updated, drained, undrained or removed."""

    name: str
    action: Literal["add", "update", "drain", "undrain", "remove"]
    capacity: dict[str, int] = {}
    labels: dict[str, str] = {}
    taints: list[TaintStep] = []
    partition: str = ""


class _Placed(_Resources):
    """Where pods may be placed, in Kubernetes' own words."""

    nodeSelector: dict[str, str] = {}  # noqa: N815
    tolerations: list[TolerationStep] = []
    affinity: dict[str, Any] = {}
    topologySpreadConstraints: list[dict[str, Any]] = []  # noqa: N815
    labels: dict[str, str] = {}
    hostPorts: list[int] = []  # noqa: N815
    nodeName: str = ""  # noqa: N815

    @model_validator(mode="after")
    def _hold(self) -> Self:
        try:
            self.constraints()
        except ManifestError as error:
            raise ValueError(str(error)) from error
        return self

    def constraints(self) -> Constraints:
        """Return where the pods may be placed. Raises ManifestError."""
        spec = {
            "nodeSelector": self.nodeSelector,
            "tolerations": [item.model_dump() for item in self.tolerations],
            "affinity": self.affinity,
            "topologySpreadConstraints": self.topologySpreadConstraints,
            "containers": [{"ports": [{"hostPort": port} for port in self.hostPorts]}],
        }
        return parse_constraints(spec, "", labels=self.labels, required_node=self.nodeName)


class _Ours(_Placed):
    """Pods that are ours to place: their annotations may say a share of GPUs."""

    annotations: dict[str, str] = {}

    def request(self) -> Resource:
        """Return what a pod asks for, with its share of GPUs. Raises ManifestError."""
        return self._with_share()[0]

    def constraints(self) -> Constraints:
        """Return where the pods may be placed. Raises ManifestError."""
        return over_devices(super().constraints(), self._with_share()[1])

    def _with_share(self) -> tuple[Resource, int]:
        return with_share(self._amounts(), self.annotations, "annotations")

    def _amounts(self) -> ResourceView:
        raise NotImplementedError


class TaskGroupEntry(_Ours):
    """A task group, with the YuniKorn annotation's own keys."""

    name: str = Field(min_length=1)
    minMember: int = Field(ge=1, le=2**31 - 1)  # noqa: N815
    minResource: dict[str, int]  # noqa: N815
    topology: dict[str, Any] | None = None

    def _amounts(self) -> ResourceView:
        return self.minResource


class SubmitStep(_Strict):
    """An application."""

    app: str = Field(min_length=1)
    queue: str = ""
    partition: str = DEFAULT_PARTITION
    user: str = "nobody"
    groups: list[str] = []
    namespace: str = "default"
    tags: dict[str, str] = {}
    style: str = "Soft"
    placeholderTimeoutInSeconds: int = 0  # noqa: N815
    executionTimeoutInSeconds: int = 0  # noqa: N815
    taskGroups: list[TaskGroupEntry] = []  # noqa: N815


class PodsStep(_Ours):
    """Real pods of an application."""

    app: str = Field(min_length=1)
    name: str = Field(min_length=1)
    count: int | None = Field(default=None, ge=1, le=100_000)
    requests: dict[str, int]
    taskGroup: str = ""  # noqa: N815
    priority: int = Field(default=0, ge=-(2**31), lt=2**31)
    runSeconds: float = Field(default=0, ge=0)  # noqa: N815
    allowPreemption: bool = True  # noqa: N815
    preemptionPolicy: Literal["", "Never", "PreemptLowerPriority"] = ""  # noqa: N815

    def _amounts(self) -> ResourceView:
        return self.requests


class ForeignStep(_Placed):
    """A pod that another scheduler bound to a node; again, with other requests, is a resize."""

    name: str = Field(min_length=1)
    node: str = Field(min_length=1)
    requests: dict[str, int]
    static: bool = False
    priority: int = Field(default=0, ge=-(2**31), lt=2**31)


class ManifestsStep(_Strict):
    """Kubernetes manifests as ``muster submit -f`` takes them: a file, or the documents of one."""

    file: str = ""
    documents: list[dict[str, Any]] = []
    runSeconds: float = Field(default=30, ge=0)  # noqa: N815

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.file) == bool(self.documents):
            raise ValueError("either a file or documents are expected")
        return self


class DeleteStep(_Strict):
    """Pods, foreign ones, or a whole application, that are deleted."""

    pods: list[str] = []
    foreign: list[str] = []
    app: str = ""


class HoldStep(_Strict):
    """Whether the resource manager holds its confirmations back."""

    confirmations: bool


class CountEntry(_Strict):
    """How many pods are in a state."""

    app: str | None = None
    taskGroup: str | None = None  # noqa: N815
    placeholder: bool | None = None
    state: PodState | None = None
    node: str | None = None
    number: int = Field(alias="is", ge=0)


class PodExpectation(_Strict):
    """What must be true of a pod."""

    state: PodState | None = None
    node: str | None = None
    reason: str | None = None
    devices: str | None = None  # GPU devices, as their annotation says them


class EventEntry(_Strict):
    """An event, by the fields of the REST answer; its numbers by YuniKorn's names for them.

    With ``is`` so many are expected; without, one that comes after those listed before it.
    """

    type: Literal["REQUEST", "APP", "NODE", "QUEUE", "USERGROUP"] | None = None
    eventChangeType: Literal["NONE", "SET", "ADD", "REMOVE"] | None = None  # noqa: N815
    eventChangeDetail: str | None = None  # noqa: N815
    objectID: str | None = None  # noqa: N815
    referenceID: str | None = None  # noqa: N815
    message: str | None = None
    resource: dict[str, int] | None = None
    number: int | None = Field(default=None, alias="is", ge=0)

    @field_validator("eventChangeDetail")
    @classmethod
    def _detail(cls, value: str | None) -> str | None:
        if value is not None and value not in ChangeDetail.__members__:
            raise ValueError("a detail such as APP_NEW or DETAILS_NONE was expected")
        return value


class ExpectStep(_Strict):
    """What must be true now; what is not named is not compared, and null must not be there.

    Queues, nodes, users, groups and applications are those of a ``partition``.
    """

    partition: str = DEFAULT_PARTITION
    applications: dict[str, dict[str, Any] | None] = {}
    pods: dict[str, PodExpectation] = {}
    count: list[CountEntry] = []
    nodes: dict[str, dict[str, Any] | None] = {}
    queues: dict[str, dict[str, Any] | None] = {}
    users: dict[str, dict[str, Any] | None] = {}
    groups: dict[str, dict[str, Any] | None] = {}
    rejected: dict[str, str] = {}
    decisions: list[dict[str, Any]] = []
    events: list[EventEntry] = []
    why: dict[str, str | dict[str, Any] | None] = {}
    invariants: bool | None = None


class Step(_Strict):
    """One step: exactly one of the keys."""

    submit: SubmitStep | None = None
    pods: PodsStep | None = None
    foreign: ForeignStep | None = None
    manifests: ManifestsStep | None = None
    delete: DeleteStep | None = None
    node: NodeStep | None = None
    config: str | InstanceOf[Inline] | None = None
    hold: HoldStep | None = None
    restart: Literal["core", "timers", "shim_adapter", "api"] | None = None
    advance: int | None = None
    expect: ExpectStep | None = None

    @field_validator("advance", mode="before")
    @classmethod
    def _duration(cls, value: Any) -> Any:
        return parse_duration_ns(value)

    @property
    def kind(self) -> str:
        """Return the one key that the step has."""
        return next(iter(self.model_fields_set))


def _among(names: Collection[str]) -> AfterValidator:
    """Return the judge of a name: it is one of these."""

    def judge(value: str) -> str:
        if value not in names:
            raise ValueError(f"there is no {value!r}; there are {', '.join(names)}")
        return value

    return AfterValidator(judge)


_LISTS = ("actions", "plugins")


class SchedulerSettings(_Strict):
    """Muster's own scheduler settings."""

    gangAdmission: Literal["queue", "cluster", "partial"] = "queue"  # noqa: N815
    gangGrowth: Annotated[str, _among(GROWTHS)] = ""  # noqa: N815
    gangSurplus: Annotated[str, _among(SURPLUSES)] = ""  # noqa: N815
    starvationGuard: str = "5m"  # noqa: N815
    reservations: Annotated[str, _among(RESERVATIONS)] = HEADS
    reservationDelay: str = "2s"  # noqa: N815
    maxReservedNodes: str = Field(default="", pattern=r"^([0-9]{1,9}|[0-9]{1,2}%|100%)?$")  # noqa: N815
    preset: Annotated[str, _among(PRESETS)] = ""
    backfill: Annotated[str, _among(BACKFILLS)] = DISABLED
    policy: Annotated[str, _among(MAY_BE_NAMED)] = YUNIKORN
    stalenessGracePeriod: str = "60s"  # noqa: N815
    stuckInReleasing: str = "2m"  # noqa: N815
    restartRoom: str = "30s"  # noqa: N815
    avoidNode: str = ""  # noqa: N815
    spares: str = ""
    topologyLevels: str = ""  # noqa: N815
    usageHalfLife: str = ""  # noqa: N815
    usageWindow: str = ""  # noqa: N815
    kValue: str = ""  # noqa: N815
    victimOrder: Annotated[str, _among(VICTIM_ORDERS)] = YOUNGEST  # noqa: N815
    actions: list[Annotated[str, _among(ACTIONS)]] = []
    plugins: list[str] = []
    # Old names that have no new one, and still hold:
    fairLeafGangs: Literal["enabled", "disabled"] = "disabled"  # noqa: N815
    nodeScoreWindow: int = Field(default=NODE_SCORE_WINDOW, ge=1, le=MAX_NODE_SCORE_WINDOW)  # noqa: N815
    remakePlaceholders: Literal["enabled", "disabled"] = "enabled"  # noqa: N815
    stateAware: Literal["fifo", "filtered"] = "fifo"  # noqa: N815
    _warnings: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="wrap")
    @classmethod
    def _by_new_names(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(value, dict):
            return handler(value)
        texts = {k: str(text) for k, text in value.items() if isinstance(text, str | int | float)}
        read = named(texts)
        if read.refused:
            raise ValueError(read.refused[0])
        rest = {key: item for key, item in value.items() if key not in texts}
        found = handler({**rest, **read.stated})
        found._warnings = read.warnings
        return found

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return a sentence for each old name that is used."""
        return self._warnings

    @field_validator("plugins")
    @classmethod
    def _installed(cls, names: list[str]) -> list[str]:
        for name in names:
            find_plugin(name)
        return names

    @field_validator("starvationGuard")
    @classmethod
    def _guard(cls, value: str) -> str:
        if parse_go_duration(value) is None:
            raise ValueError("a duration such as 5m, or 0, was expected")
        return value

    @field_validator("reservationDelay", "stalenessGracePeriod", "stuckInReleasing")
    @classmethod
    def _delay(cls, value: str) -> str:
        if parse_go_duration(value.removeprefix("-")) is None:
            raise ValueError("a duration such as 2s or 500ms was expected")
        return value

    @field_validator("usageHalfLife", "usageWindow", "kValue")
    @classmethod
    def _of_usage(cls, value: str, info: ValidationInfo) -> str:
        if refused := refused_value(str(info.field_name), value):
            raise ValueError(refused)
        return value

    @model_validator(mode="after")
    def _of_the_policy(self) -> Self:
        if refused := refused_actions(self.policy, self.actions):
            raise ValueError(refused[0])
        return self

    def pairs(self) -> dict[str, str]:
        """Return the settings as the resource manager tells them."""
        stated = self.model_dump(exclude_unset=True)
        lists = {name: ",".join(value) for name, value in stated.items() if name in _LISTS}
        return {name: str(value) for name, value in stated.items()} | lists


class Scenario(_Strict):
    """A whole file. ``snapshot`` names a cluster that it begins with, beside it."""

    name: str
    snapshot: str = Field(default="", alias="from")
    config: str | InstanceOf[Inline] | None = None
    scheduler: SchedulerSettings = SchedulerSettings()
    nodes: list[NodeEntry] = []
    steps: list[Step] = Field(min_length=1)
    _begins_with: Snapshot | None = PrivateAttr(None)

    @property
    def begins_with(self) -> Snapshot | None:
        """Return the cluster that it begins with, if it names one."""
        return self._begins_with

    @property
    def settings(self) -> dict[str, str]:
        """Return the scheduler settings: its own, then those of the cluster that it begins with."""
        taken = self._begins_with.config.settings if self._begins_with is not None else {}
        return {**taken, **self.scheduler.pairs()}


def parse_duration_ns(value: Any) -> int:
    """Return a duration such as ``31s``, ``1m30s`` or ``500ms`` in nanoseconds."""
    text = str(value).strip()
    parts = list(_DURATION.finditer(text))
    if not parts or "".join(part.group(0) for part in parts) != text:
        raise ValueError("a duration such as 31s, 1m30s or 500ms was expected")
    return round(sum(float(part.group(1)) * _UNITS_NS[part.group(2)] for part in parts))


def load_scenario(path: Path) -> tuple[Scenario, str]:
    """Return the scenario in a file and its queue configuration as text. Raises ScenarioError."""
    root, document = _read(path)
    try:
        scenario = Scenario.model_validate(document)
    except ValidationError as error:
        raise ScenarioError(_explain(path, root, error)) from error
    for at, step in enumerate(scenario.steps):
        if len(step.model_fields_set) != 1:
            line = _line_of(root, ("steps", at))
            found = ", ".join(sorted(step.model_fields_set)) or "none"
            raise ScenarioError(f"{path}:{line}: steps.{at}: one key a step, found {found}")
    if scenario.snapshot:
        scenario._begins_with = _snapshot(path.parent / scenario.snapshot)
    if scenario.config is None and scenario.begins_with is not None:
        return scenario, scenario.begins_with.config.text
    return scenario, config_text(scenario.config, path.parent)


def _snapshot(path: Path) -> Snapshot:
    try:
        return read_snapshot(path)
    except OSError as error:
        raise ScenarioError(f"from: {path}: {error.strerror}") from error
    except SnapshotError as error:
        raise ScenarioError(f"from: {error}") from error


def config_text(config: str | Inline | None, folder: Path) -> str:
    """Return a queue configuration as YAML text, read from its file where it names one."""
    if config is None:
        return ""
    if isinstance(config, Inline):
        return config.text
    try:
        return queue_file(text_of(folder / config)).text
    except OSError as error:
        raise ScenarioError(f"config: {folder / config}: {error.strerror}") from error
    except QueueConfigError as error:
        raise ScenarioError(f"config: {folder / config}: {error}") from error


def _read(path: Path) -> tuple[yaml.Node, Any]:
    try:
        text = text_of(path)
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: not UTF-8: {error}") from error
    if len(text) > MAX_FILE_BYTES:
        raise ScenarioError(f"{path}: {len(text)} characters, at most {MAX_FILE_BYTES}")
    try:
        root, document = one_document(text)
    except YamlFileError as error:
        raise ScenarioError(f"{path}:{error.line}: {error}") from error
    if root is None:
        raise ScenarioError(f"{path}:1: the file is empty; a map with name and steps was expected")
    _mark_configurations(text, root, document)
    return root, document


def _mark_configurations(text: str, root: yaml.Node, document: Any) -> None:
    """Have every queue configuration of a scenario judged as it stands, with the file's lines."""
    write_inline(text, "config", root, document)
    pairs = root.value if isinstance(root, yaml.MappingNode) else ()
    steps = next((found for key, found in pairs if key.value == "steps"), None)
    values = document.get("steps") if isinstance(document, dict) else None
    if isinstance(steps, yaml.SequenceNode) and isinstance(values, list):
        for node, value in zip(steps.value, values, strict=True):
            write_inline(text, "config", node, value)


def _explain(path: Path, root: yaml.Node, error: ValidationError) -> str:
    """Return the first mistake as a sentence."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "no such key"
    return f"{path}:{_line_of(root, first['loc'])}: {where}: {message}"


def _line_of(root: yaml.Node, where: tuple[Any, ...]) -> int:
    """Return the line of a path, as near as the file has it."""
    node = root
    line = node.start_mark.line + 1
    for part in where:
        if isinstance(node, yaml.MappingNode):
            found = [(k, v) for k, v in node.value if str(k.value) == str(part)]
            if not found:
                continue
            line = found[0][0].start_mark.line + 1
            node = found[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line

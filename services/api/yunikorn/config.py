"""YuniKorn's answer about its configuration (docs/rules/rest.md#configuration, ConfigDAOInfo).

As YAML the keys are queues.yaml's own; as JSON they are the names of Go's fields. Go leaves out a
record that is empty from YAML, and not from JSON.
"""

from typing import Any

import yaml

from services.api.projection.model import Model
from services.api.yunikorn.answers import Answer, by_weight, pruned
from shared.messages.state import ConfigurationState
from shared.model.checksum import checksum_of
from shared.queueconfig import load_configuration
from shared.queueconfig.schema import (
    FilterSpec,
    LimitSpec,
    PartitionSpec,
    PlacementRuleSpec,
    QueueSpec,
    ResourcesSpec,
)

_DEADLOCK_SECONDS = 60


def config_info(model: Model) -> Answer:
    """Return the configuration in use, with the names of Go's fields."""
    known = model.configuration or ConfigurationState("")
    held = load_configuration(known.text)
    return {
        "Partitions": [_partition(item) for item in held.partitions],
        "Checksum": checksum_of(known.text),
        "Extra": _names(dict(known.extra)),
        "DeadlockDetectionEnabled": False,  # services that only send messages cannot lock up
        "DeadlockTimeoutSeconds": _DEADLOCK_SECONDS,
    }


def config_yaml(model: Model) -> bytes:
    """Return the configuration in use as YAML."""
    value = _lowered(config_info(model))
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, indent=4)
    return text.encode()


class _Names(dict[str, Any]):
    """A map whose keys are user-defined names, and are not converted."""


def _lowered(value: Any) -> Any:
    """Return a value with queues.yaml's keys, without empty records."""
    if isinstance(value, _Names):
        return dict(value)
    if isinstance(value, list):
        return [_lowered(item) for item in value]
    if not isinstance(value, dict):
        return value
    below = {key.lower(): _lowered(item) for key, item in value.items()}
    return {key: item for key, item in below.items() if item not in ({}, "") or key == "extra"}


def _names(values: dict[str, Any]) -> _Names:
    return _Names(sorted(values.items()))


def _partition(spec: PartitionSpec) -> Answer:
    return {
        "Name": spec.name,
        "Queues": [_queue(queue) for queue in spec.queues or []],
        **pruned(
            {
                "PlacementRules": [_rule(rule) for rule in spec.placementrules],
                "Limits": [_limit(limit) for limit in spec.limits],
            }
        ),
        "Preemption": _set(
            Enabled=spec.preemption.enabled,
            QuotaPreemptionEnabled=spec.preemption.quotapreemptionenabled,
        ),
        "NodeSortPolicy": {
            "Type": spec.nodesortpolicy.type,
            **pruned({"ResourceWeights": _names(by_weight(spec.nodesortpolicy.resourceweights))}),
        },
        "UserGroupResolver": pruned({"type": spec.usergroupresolver.type}),
    }


def _set(**values: object) -> Answer:
    """Return the fields that are set, even to false."""
    return {name: value for name, value in values.items() if value is not None}


def _queue(spec: QueueSpec) -> Answer:
    template = spec.childtemplate
    return {
        "Name": spec.name,
        **pruned({"Parent": spec.parent}),
        "Resources": _resources(spec.resources),
        **pruned(
            {
                "MaxApplications": spec.maxapplications,
                "Properties": _names(spec.properties),
                "AdminACL": spec.adminacl,
                "SubmitACL": spec.submitacl,
            }
        ),
        "ChildTemplate": {
            **pruned(
                {
                    "MaxApplications": template.maxapplications,
                    "Properties": _names(template.properties),
                }
            ),
            "Resources": _resources(template.resources),
        },
        **pruned(
            {
                "Queues": [_queue(queue) for queue in spec.queues or []],
                "Limits": [_limit(limit) for limit in spec.limits],
            }
        ),
    }


def _resources(spec: ResourcesSpec) -> Answer:
    return pruned({"Guaranteed": _names(spec.guaranteed or {}), "Max": _names(spec.max or {})})


def _limit(spec: LimitSpec) -> Answer:
    return {
        "Limit": spec.limit,
        **pruned(
            {
                "Users": list(spec.users),
                "Groups": list(spec.groups),
                "MaxResources": _names(spec.maxresources),
                "MaxApplications": spec.maxapplications,
            }
        ),
    }


def _rule(spec: PlacementRuleSpec) -> Answer:
    return {
        "Name": spec.name,
        **pruned({"Create": spec.create}),
        "Filter": _filter(spec.filter),
        **({"Parent": _rule(spec.parent)} if spec.parent is not None else {}),
        **pruned({"Value": spec.value}),
    }


def _filter(spec: FilterSpec) -> Answer:
    return {
        "Type": spec.type,
        **pruned({"Users": list(spec.users), "Groups": list(spec.groups)}),
    }

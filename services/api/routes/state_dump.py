"""``/debug/fullstatedump``: everything in one answer.

The resource manager's own state is not included, as for a shim that registers no callback.

Source: docs/rules/rest.md#state-dump, AggregatedStateInfo.
"""

from collections.abc import Sequence

from services.api.machine import ApiMachine
from services.api.projection.model import Model
from services.api.yunikorn.answers import (
    Answer,
    application_info,
    by_name,
    cluster_id,
    node_info,
    partition_info,
    pruned,
    queue_tree_info,
)
from services.api.yunikorn.build import build_information
from services.api.yunikorn.config import config_info
from services.api.yunikorn.history import application_history, container_history
from services.api.yunikorn.usage import rules_info


def cluster_info(model: Model) -> list[Answer]:
    """Return ClusterDAOInfo of a partition, or an empty list before there is one."""
    partition = model.partition
    if partition is None:
        return []
    return [
        {
            "startTime": partition.started_ns,
            "rmBuildInformation": [by_name({**build_information(), "rmId": cluster_id(partition)})],
            "partition": partition.name,
            "clusterName": "kubernetes",
        }
    ]


def state_dump(machine: ApiMachine, models: Sequence[Model]) -> Answer:
    """Return AggregatedStateInfo of all partitions, at least one."""
    history = machine.partitions.history
    dump = {
        "timestamp": max(model.time_ns for model in models),
        "partitions": [info for model in models for info in partition_info(model)],
        "applications": [
            application_info(model, view)
            for model in models
            for view in (*model.applications.values(), *model.ended.values())
        ],
        "appHistory": application_history(history),
        "nodes": [_nodes(model) for model in models],
        "clusterInfo": [info for model in models for info in cluster_info(model)],
        "containerHistory": container_history(history),
        "queues": [queue_tree_info(model) for model in models],
        "rmDiagnostics": {"empty": "Resource Manager did not register callback"},
        "logLevel": "info",
        "config": config_info(models[0]),
        "placementRules": [
            {"partition": model.name, "rules": rules_info(model)} for model in models
        ],
        "eventStreams": machine.streams.info(),
    }
    return pruned(dump)


def _nodes(model: Model) -> Answer:
    infos = [node_info(node) for node in model.nodes.values()]
    return pruned({"partitionName": model.name, "nodesInfo": infos}, always=("partitionName",))

"""``/debug/fullstatedump``: everything in one answer (contract section 5.3, AggregatedStateInfo).

The resource manager's own state is not kept here, as that of a shim that registers no callback.
"""

from services.api.build import build_information
from services.api.machine import ApiMachine
from services.api.projection.model import Model
from services.api.ws_v1 import (
    Answer,
    application_info,
    by_name,
    node_info,
    partition_info,
    pruned,
    queue_info,
)
from services.api.ws_v1_config import config_info
from services.api.ws_v1_history import application_history, container_history
from services.api.ws_v1_usage import rules_info


def cluster_info(model: Model) -> list[Answer]:
    """Return ClusterDAOInfo for the one partition, or an empty list before there is one."""
    partition = model.partition
    if partition is None:
        return []
    return [
        {
            "startTime": partition.started_ns,
            "rmBuildInformation": [by_name({**build_information(), "rmId": partition.rm_id})],
            "partition": partition.name,
            "clusterName": "kubernetes",
        }
    ]


def state_dump(machine: ApiMachine, model: Model) -> Answer:
    """Return AggregatedStateInfo."""
    history = machine.projection.history
    partition = model.partition
    name = partition.name if partition is not None else "default"
    views = [*model.applications.values(), *model.ended.values()]
    dump = {
        "timestamp": model.time_ns,
        "partitions": partition_info(model),
        "applications": [application_info(model, view) for view in views],
        "appHistory": application_history(history),
        "nodes": [
            pruned(
                {
                    "partitionName": name,
                    "nodesInfo": [node_info(node) for node in model.nodes.values()],
                },
                always=("partitionName",),
            )
        ],
        "clusterInfo": cluster_info(model),
        "containerHistory": container_history(history),
        "queues": [queue_info(model, "root", subtree=True, partition=name)],
        "rmDiagnostics": {"empty": "Resource Manager did not register callback"},
        "logLevel": "info",
        "config": config_info(model),
        "placementRules": [{"partition": name, "rules": rules_info(model)}],
        "eventStreams": machine.streams.info(),
    }
    return pruned(dump)

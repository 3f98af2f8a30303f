"""``/debug/fullstatedump``: everything in one answer (contract section 5.3, AggregatedStateInfo).

What this API does not keep is empty: histories, the resource manager's own state, event streams.
"""

from services.api.build import build_information
from services.api.projection.model import Model
from services.api.ws_v1 import (
    Answer,
    application_info,
    by_name,
    node_info,
    partition_info,
    queue_info,
)
from services.api.ws_v1_usage import rules_info


def cluster_info(model: Model) -> list[Answer]:
    """Return ClusterDAOInfo for the one partition, or an empty list before there is one."""
    partition = model.partition
    if partition is None:
        return []
    return [
        {
            "startTime": partition.state_time_ns,
            "rmBuildInformation": [by_name({**build_information(), "rmId": partition.rm_id})],
            "partition": partition.name,
            "clusterName": "kubernetes",
        }
    ]


def state_dump(model: Model) -> Answer:
    """Return AggregatedStateInfo."""
    partition = model.partition
    name = partition.name if partition is not None else "default"
    views = [*model.applications.values(), *model.ended.values()]
    return {
        "timestamp": model.time_ns,
        "partitions": partition_info(model),
        "applications": [application_info(model, view) for view in views],
        "appHistory": [],
        "nodes": [
            {
                "partitionName": name,
                "nodesInfo": [node_info(node) for node in model.nodes.values()],
            }
        ],
        "clusterInfo": cluster_info(model),
        "containerHistory": [],
        "queues": [queue_info(model, "root", subtree=True, partition=name)],
        "rmDiagnostics": {"empty": "Resource Manager did not register callback"},
        "logLevel": "info",
        "config": {"Checksum": partition.config_checksum if partition is not None else ""},
        "placementRules": [{"partition": name, "rules": rules_info(model)}],
        "eventStreams": [],
    }

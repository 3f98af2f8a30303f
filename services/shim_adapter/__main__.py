"""Run the shim adapter alone: ``python -m services.shim_adapter``, configured by the environment.

MUSTER_RESOURCE_MANAGER selects the cluster that it manages. ``kubernetes``: the cluster of
MUSTER_KUBECONFIG, or the one that it runs in; its ConfigMaps contain queues.yaml. ``simulated``:
MUSTER_SIMULATED_NODES nodes exist at the first start, MUSTER_STATE_DIR stores its state, and
MUSTER_QUEUES_FILE is watched: a change takes effect.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from services.shim_adapter.backends.kubernetes.access import AccessError, find_access
from services.shim_adapter.backends.kubernetes.configuration import settings_of_environment
from services.shim_adapter.config_watch import watch
from services.shim_adapter.kubernetes_service import KubernetesService
from services.shim_adapter.queue_file import queue_file
from services.shim_adapter.service import INBOX, ShimOptions, ShimService
from shared.messages.envelope import Address
from shared.model.resources import MEMORY, PODS, VCORE
from shared.model.service_keys import from_environment
from shared.model.units import milliseconds, seconds
from shared.queueconfig import QueueConfigError
from shared.runtime.host import Host
from shared.runtime.machine import Machine
from shared.runtime.service import run_service
from shared.runtime.settings import Settings, SettingsError

PODS_A_NODE = 110
KUBERNETES = "kubernetes"


class _Kubernetes:
    """Holds the service that ``prepare`` made, for ``beside``."""

    service: KubernetesService | None = None


def prepare(settings: Settings, instance: str) -> tuple[Address, Callable[[], Machine]]:
    """Return the shim adapter's inbox and a function that makes its machine."""
    if settings.resource_manager == KUBERNETES:
        return INBOX, _kubernetes(settings, instance).make_machine
    service = ShimService(
        ShimOptions(
            state_dir=settings.state_dir,
            config=_queues(settings.queues_file),
            scheduler_settings=settings_of_environment(os.environ),
            start_delay_ns=milliseconds(settings.pod_start_delay_ms),
            confirm_delay_ns=milliseconds(settings.release_delay_ms),
            max_ended=settings.simulated_ended_pods or 0,
            default_run_ns=seconds(settings.pod_run_seconds),
            rm_id=settings.cluster_id,
            nodes=settings.simulated_nodes,
            node_capacity={
                VCORE: settings.simulated_node_vcore_milli,
                MEMORY: settings.simulated_node_memory_bytes,
                PODS: PODS_A_NODE,
            },
        )
    )
    return INBOX, service.make_machine


def _queues(file: Path | None) -> str:
    """Return the queues of a file; an invalid file is returned as is, and the core reports it."""
    if file is None:
        return ""
    text = file.read_text()
    try:
        return queue_file(text).text
    except QueueConfigError:
        return text


def _kubernetes(settings: Settings, instance: str) -> KubernetesService:
    try:
        access = find_access(settings.kubeconfig, settings.kubernetes_url)
    except AccessError as error:
        raise SettingsError(str(error)) from error
    namespace = settings.kubernetes_namespace or access.namespace
    _Kubernetes.service = KubernetesService(
        replace(access, namespace=namespace),
        instance=instance,
        rm_id=settings.cluster_id,
        environment=from_environment(os.environ),
    )
    return _Kubernetes.service


async def beside(host: Host, settings: Settings) -> None:
    """Run concurrently with the host: the watch on the file, or the sessions with the cluster."""
    tasks = [watch(lambda: host, settings.queues_file)]
    if _Kubernetes.service is not None:
        tasks.append(_Kubernetes.service.run(lambda: host))
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    run_service("shim_adapter", prepare, beside)

"""What an API server checks of volumes, claims, their classes and CSINodes as they are made."""

from collections.abc import Callable

from tests.kubernetes.store import ApiFailureError, Object, Store

CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"
CLASSES, CSI_NODES = "storageclasses.storage.k8s.io", "csinodes.storage.k8s.io"
ONE_POD = "ReadWriteOncePod"
NO_SOURCE = {
    "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity",
    "persistentVolumeReclaimPolicy", "storageClassName", "volumeMode",
}  # fmt: skip


def _need(holds: object, what: str) -> None:
    if not holds:
        raise ApiFailureError(422, "Invalid", f"{what}: Required value")


def _check_modes(spec: Object) -> None:
    modes = spec.get("accessModes") or []
    _need(modes, "spec.accessModes")
    if ONE_POD in modes and len(modes) > 1:
        text = f"spec.accessModes: Forbidden: may not use {ONE_POD} with other access modes"
        raise ApiFailureError(422, "Invalid", text)


def check_claim(_: Store, __: str, body: Object) -> None:
    spec = body.get("spec") or {}
    _check_modes(spec)
    _need(
        (spec.get("resources") or {}).get("requests", {}).get("storage"),
        "spec.resources[requests][storage]",
    )
    body["status"] = {"phase": "Pending"}  # whoever makes it has no say in that


def check_volume(_: Store, __: str, body: Object) -> None:
    spec = body.get("spec") or {}
    _check_modes(spec)
    _need((spec.get("capacity") or {}).get("storage"), "spec.capacity")
    sources = set(spec) - NO_SOURCE
    _need(sources, "spec: a volume type")
    if len(sources) > 1:
        raise ApiFailureError(422, "Invalid", "spec: Forbidden: may not specify more than 1 type")
    if "local" in sources:
        _need(spec.get("nodeAffinity"), "spec.nodeAffinity")
    body["status"] = {"phase": "Pending"}


def check_class(_: Store, __: str, body: Object) -> None:
    _need(body.get("provisioner"), "provisioner")


def check_csi_node(_: Store, __: str, body: Object) -> None:
    for driver in (body.get("spec") or {}).get("drivers") or ():
        _need(driver.get("name"), "spec.drivers.name")
        _need(driver.get("nodeID"), "spec.drivers.nodeID")
        count = (driver.get("allocatable") or {}).get("count", 0)
        if type(count) is not int or count < 0:
            raise ApiFailureError(422, "Invalid", f"spec.drivers.allocatable.count: {count!r}")


CHECKS: dict[str, Callable[[Store, str, Object], None]] = {
    CLAIMS: check_claim,
    VOLUMES: check_volume,
    CLASSES: check_class,
    CSI_NODES: check_csi_node,
}

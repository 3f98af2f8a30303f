"""What our service accounts may do: the rights of deploy/kubernetes, as the double grants them."""

from pathlib import Path

import yaml

_FOLDER = Path(__file__).parents[2] / "deploy/kubernetes"
RBAC = _FOLDER / "rbac.yaml"
ADMISSION = _FOLDER / "admission/admission.yaml"
Right = tuple[str, str, str, str]  # verb, group, resource, and the name it is for ("": any)


def granted(file: Path = RBAC) -> set[Right]:
    """Return every right of a file."""
    return {
        (verb, group, resource, name)
        for document in yaml.safe_load_all(file.read_text())
        if document["kind"] in ("Role", "ClusterRole")
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }

"""What the shim adapter may do: the rights of deploy/kubernetes/rbac.yaml, as the double grants them."""

from pathlib import Path

import yaml

RBAC = Path(__file__).parents[2] / "deploy/kubernetes/rbac.yaml"
Right = tuple[str, str, str, str]  # verb, group, resource, and the name it is for ("": any)


def granted() -> set[Right]:
    """Return every right of the file."""
    return {
        (verb, group, resource, name)
        for document in yaml.safe_load_all(RBAC.read_text())
        for rule in document.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }

"""What our service accounts may do: the rights of deploy/kubernetes, as the double grants them.

Who has a token of a service account has what the roles in the store grant it, where they grant it.
"""

from functools import cache
from pathlib import Path

import yaml

from tests.kubernetes.store import Object, Store

_FOLDER = Path(__file__).parents[2] / "deploy/kubernetes"
RBAC = _FOLDER / "rbac.yaml"
ADMISSION = _FOLDER / "admission/admission.yaml"
Right = tuple[str, str, str, str]  # verb, group, resource, and the name it is for ("": any)
_GROUP = "rbac.authorization.k8s.io"


@cache
def granted(file: Path = RBAC) -> frozenset[Right]:
    """Return every right of a file, which each double asks for."""
    return frozenset(
        right
        for document in yaml.load_all(file.read_text(), yaml.CSafeLoader)
        if document["kind"] in ("Role", "ClusterRole")
        for right in _rights_of(document)
    )


def granted_by_roles(store: Store, account: tuple[str, str], namespace: str) -> set[Right]:
    """Return what a service account may do in a namespace, or "" for what is in none."""
    found: set[Right] = set()
    for plural, where in (("clusterrolebindings", ""), ("rolebindings", namespace)):
        for (at, _), binding in store.all(f"{plural}.{_GROUP}").items():
            whom = [(s.get("namespace"), s["name"]) for s in binding["subjects"]]
            if at != where or account not in whom:
                continue
            role = binding["roleRef"]
            of_role = at if role["kind"] == "Role" else ""
            plural_of_role = f"{role['kind'].lower()}s.{_GROUP}"
            found |= _rights_of(store.get(plural_of_role, of_role, role["name"]))
    return found


def _rights_of(role: Object) -> set[Right]:
    return {
        (verb, group, resource, name)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }

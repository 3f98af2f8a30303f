"""Placement: which queue an application goes to.

Rules are evaluated in order; the first that names a usable queue is used. Without configured rules
it is ``provided`` without create; ``recovery`` always comes last, for applications that must be
accepted, and then ``root.default`` if it exists.
Source: docs/rules/placement.md#rules; cases P-01 to P-13.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from services.core.scheduler.model.placement_rules import (
    FIXED,
    PROVIDED,
    RECOVERY,
    USER,
    PlacementRules,
    Rule,
)
from services.core.scheduler.model.queue_ledger import DRAINING
from services.core.scheduler.model.rows import Queue
from shared.messages.interface import AddApplicationRequest
from shared.model.names import FORCE_TAG, QUEUE, QUEUE_ERROR, ROOT

DEFAULT_QUEUE = "root.default"
RECOVERY_QUEUE = "root.@recovery@"
MAX_PATH = 512  # characters: with it how deep queues may be made one below the other
_DOT = "_dot_"


class PlacementError(ValueError):
    """A rule cannot be applied: the application is rejected at once."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The path of the queue, "" if no rule matched, and the paths refused by ACLs."""

    path: str
    denied: tuple[str, ...] = ()


def place(
    rules: PlacementRules, queues: Mapping[str, Queue], request: AddApplicationRequest
) -> Placement:
    """Return an application's queue. Raises PlacementError."""
    denied: list[str] = []
    for rule in rules.all():
        path = _path(rule, queues, request)
        if path and _can_be_had(path, rule, queues, request, denied):
            return Placement(path)
    default = queues.get(DEFAULT_QUEUE)
    if default is not None and _can_be_had(DEFAULT_QUEUE, Rule(FIXED), queues, request, denied):
        return Placement(DEFAULT_QUEUE)
    return Placement("", tuple(dict.fromkeys(denied)))


def _can_be_had(
    path: str,
    rule: Rule,
    queues: Mapping[str, Queue],
    request: AddApplicationRequest,
    denied: list[str],
) -> bool:
    """Whether an application may use a queue, existing or to be created."""
    if rule.name == RECOVERY:
        return True
    queue = queues.get(path)
    if queue is not None and (not queue.is_leaf or queue.status == DRAINING):
        return False
    nearest = queue if queue is not None else nearest_queue(path, queues)
    ugi = request.ugi
    if may_submit(nearest, ugi.user, ugi.resolved_groups):
        return True
    denied.append(path)
    return False


def nearest_queue(path: str, queues: Mapping[str, Queue]) -> Queue:
    """Return the queue of a path, or the nearest existing one above it.

    Raises PlacementError if there is none: the path does not start at the root.
    """
    above = path
    while above not in queues:
        above = above.rpartition(".")[0]
        if not above:
            raise PlacementError(f"illegal queue name passed in: {path}")
    return queues[above]


def may_submit(queue: Queue, user: str, groups: tuple[str, ...]) -> bool:
    """Whether an ACL of the queue, or of a queue above it, allows a user."""
    if queue.path == RECOVERY_QUEUE:
        return False
    return any(
        level.submit_access.allows(user, groups) or level.admin_access.allows(user, groups)
        for level in queue.lineage()
    )


# --- rules --------------------------------------------------------------------------------------


def _path(rule: Rule, queues: Mapping[str, Queue], request: AddApplicationRequest) -> str:
    """Return the path that a rule names, "" for no match. Raises PlacementError.

    A name that starts with ``root.`` is a whole path; a fixed rule's may be ``root`` itself.
    """
    if rule.name == RECOVERY:
        return RECOVERY_QUEUE if is_forced(request) else ""
    ugi = request.ugi
    if not rule.filter.lets_through(ugi.user, ugi.resolved_groups):
        return ""
    name = _name(rule, request)
    if not name:
        return ""
    is_root = name == ROOT and rule.name == FIXED
    if (is_root or name.startswith(f"{ROOT}.")) and rule.name != USER:
        path = name
    else:
        above = _parent(rule, queues, request)
        if not above:
            return ""
        below = name if rule.name == FIXED else name.replace(".", _DOT)
        path = f"{above}.{below}"
    check_names(path)
    if path == RECOVERY_QUEUE or (path not in queues and not rule.create):
        return ""
    return path


def _name(rule: Rule, request: AddApplicationRequest) -> str:
    """Return the name that a rule derives from an application, in lower case, "" for none."""
    names = {PROVIDED: request.queue_name, USER: request.ugi.user, FIXED: rule.value}
    name = names.get(rule.name)
    return (_tag(request, rule.value) if name is None else name).lower()


def is_forced(request: AddApplicationRequest) -> bool:
    """Whether an application must be accepted: it has pods on nodes already."""
    return _tag(request, FORCE_TAG) == "true"


def _tag(request: AddApplicationRequest, name: str) -> str:
    """Return a tag's value; tag names are compared without case."""
    found = request.tags.get(name)
    if found is not None:
        return found
    return next((value for key, value in request.tags.items() if key.lower() == name.lower()), "")


def _parent(rule: Rule, queues: Mapping[str, Queue], request: AddApplicationRequest) -> str:
    """Return the parent's path, "" if the parent rule does not match. Raises PlacementError."""
    if rule.parent is None:
        return ROOT
    path = _path(rule.parent, queues, request)
    queue = queues.get(path)
    if queue is not None and queue.is_leaf:
        raise PlacementError(f"parent rule returned a leaf queue: {path}")
    return path


def check_names(path: str) -> None:
    """Raise PlacementError if a path is too long, or a part is no valid queue name."""
    if len(path) > MAX_PATH:
        raise PlacementError(f"the path of a queue has at most {MAX_PATH}: {path[:MAX_PATH]}…")
    if not all(QUEUE.match(part) for part in path.split(".")):
        raise PlacementError(QUEUE_ERROR)

"""Placement: which queue an application goes to.

Rules are asked in order; the first that names a queue which can be had wins. Rules that the
configuration lacks are ``provided`` without create; ``recovery`` always comes last, for
applications that must be taken in, and then ``root.default`` where it exists.
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
from shared.model.names import QUEUE, QUEUE_ERROR, ROOT

DEFAULT_QUEUE = "root.default"
RECOVERY_QUEUE = "root.@recovery@"
FORCE_TAG = "application.create.force"
MAX_PATH = 512  # characters: with it how deep queues may be made one below the other
_DOT = "_dot_"


class PlacementError(ValueError):
    """A rule cannot be followed: the application is rejected at once."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The path of the queue, "" where no rule had one, and who was refused on the way."""

    path: str
    denied: tuple[str, ...] = ()


def place(
    rules: PlacementRules, queues: Mapping[str, Queue], request: AddApplicationRequest
) -> Placement:
    """Return where an application goes. Raises PlacementError."""
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
    """Return whether an application may go to a queue, which exists or is made for it."""
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
    """Return the queue of a path, or the nearest one above it that exists.

    Raises PlacementError where there is none: the path does not start at the root.
    """
    above = path
    while above not in queues:
        above = above.rpartition(".")[0]
        if not above:
            raise PlacementError(f"illegal queue name passed in: {path}")
    return queues[above]


def may_submit(queue: Queue, user: str, groups: tuple[str, ...]) -> bool:
    """Return whether an ACL of the queue, or of any above it, lets a user in."""
    if queue.path == RECOVERY_QUEUE:
        return False
    return any(
        level.submit_access.allows(user, groups) or level.admin_access.allows(user, groups)
        for level in queue.lineage()
    )


# --- rules --------------------------------------------------------------------------------------


def _path(rule: Rule, queues: Mapping[str, Queue], request: AddApplicationRequest) -> str:
    """Return the queue that a rule names, "" for no match. Raises PlacementError.

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
    """Return what a rule makes of an application, in lower case, "" for nothing."""
    names = {PROVIDED: request.queue_name, USER: request.ugi.user, FIXED: rule.value}
    name = names.get(rule.name)
    return (_tag(request, rule.value) if name is None else name).lower()


def is_forced(request: AddApplicationRequest) -> bool:
    """Return whether an application must be taken in: it has pods on nodes already."""
    return _tag(request, FORCE_TAG) == "true"


def _tag(request: AddApplicationRequest, name: str) -> str:
    """Return a tag's value; names of tags are compared without case."""
    found = request.tags.get(name)
    if found is not None:
        return found
    return next((value for key, value in request.tags.items() if key.lower() == name.lower()), "")


def _parent(rule: Rule, queues: Mapping[str, Queue], request: AddApplicationRequest) -> str:
    """Return the queue above, "" where the parent rule does not match. Raises PlacementError."""
    if rule.parent is None:
        return ROOT
    path = _path(rule.parent, queues, request)
    queue = queues.get(path)
    if queue is not None and queue.is_leaf:
        raise PlacementError(f"parent rule returned a leaf queue: {path}")
    return path


def check_names(path: str) -> None:
    """Raise PlacementError where a path is too long, or a part of it no queue's name."""
    if len(path) > MAX_PATH:
        raise PlacementError(f"the path of a queue has at most {MAX_PATH}: {path[:MAX_PATH]}…")
    if not all(QUEUE.match(part) for part in path.split(".")):
        raise PlacementError(QUEUE_ERROR)

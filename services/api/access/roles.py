"""The role that each route needs, as shown in the OpenAPI document.

Rule 1: a role includes those before it: who may operate may submit, who may submit may read.
Rule 2: a route not listed needs OPERATE if it may change something, else READ.
Rule 3: OPTIONS needs no role: it lists the methods of a path, as the document does.
"""

import re
from enum import IntEnum
from functools import lru_cache

from services.api.web.unrouted import pattern_of


class Role(IntEnum):
    """The rights of a user; larger roles include smaller ones."""

    OPEN = 0  # no authentication
    READ = 1  # see what there is
    SUBMIT = 2  # submit manifests, delete applications
    OPERATE = 3  # change queues and nodes

    @property
    def label(self) -> str:
        """The role's name in settings and files."""
        return self.name.lower()


NAMED = {role.label: role for role in Role if role is not Role.OPEN}  # that a user may have

_PARTITION = "/ws/v1/partition/{partition}"
_QUEUE = f"{_PARTITION}/queue/{{queue}}"
METRICS = ("GET /metrics", "GET /ws/v1/metrics")
ROLES: dict[Role, tuple[str, ...]] = {
    Role.OPEN: (
        "GET /",
        "GET /page/{name}",
        "GET /health/live",
        "GET /health/ready",
        "GET /health/serving",
    ),
    Role.READ: (
        *METRICS,
        "GET /openapi.json",
        "GET /docs",
        "GET /docs/oauth2-redirect",
        "GET /redoc",
        "GET /debug/fullstatedump",
        "GET /ws/v1/fullstatedump",
        "GET /debug/stack",
        "GET /ws/v1/stack",
        "GET /ws/v1/clusters",
        "GET /ws/v1/config",
        "GET /ws/v1/events/batch",
        "GET /ws/v1/events/stream",
        "GET /ws/v1/history/apps",
        "GET /ws/v1/history/containers",
        "GET /ws/v1/partitions",
        f"GET {_PARTITION}/application/{{application}}",
        f"GET {_PARTITION}/applications/{{state}}",
        f"GET {_PARTITION}/node/{{node}}",
        f"GET {_PARTITION}/nodes",
        f"GET {_PARTITION}/placementrules",
        f"GET {_QUEUE}",
        f"GET {_QUEUE}/application/{{application}}",
        f"GET {_QUEUE}/applications",
        f"GET {_QUEUE}/applications/{{state}}",
        f"GET {_PARTITION}/queues",
        f"GET {_PARTITION}/usage/group/{{group}}",
        f"GET {_PARTITION}/usage/groups",
        f"GET {_PARTITION}/usage/user/{{user}}",
        f"GET {_PARTITION}/usage/users",
        "GET /ws/v1/scheduler/healthcheck",
        "GET /ws/v1/scheduler/node-utilizations",
        "POST /ws/v1/validate-conf",
        "GET /v1/applications",
        "GET /v1/applications/{application}",
        "GET /v1/applications/{application}/timeline",
        "GET /v1/config",
        "GET /v1/dead-letters",
        "GET /v1/evictions",
        "GET /v1/history",
        "GET /v1/live",
        "GET /v1/outstanding",
        "GET /v1/pods",
        "GET /v1/queues",
        "GET /v1/topology",
        "GET /v1/trace/{application}",
        "GET /v1/usage",
        "GET /v1/version",
        "POST /v1/what-if",
        "GET /v1/when/{name}",
        "GET /v1/whoami",
        "GET /v1/why/{name}",
    ),
    Role.SUBMIT: (
        "POST /v1/manifests",
        "POST /v1/manifests/delete",
        "DELETE /v1/applications/{application}",
    ),
    Role.OPERATE: (
        "POST /v1/config",
        "GET /v1/dead-letters/{letter}",
        "DELETE /v1/dead-letters",
        "DELETE /v1/dead-letters/{letter}",
        "POST /v1/dead-letters",
        "POST /v1/dead-letters/{letter}/replay",
        "POST /v1/nodes/{node}/drain",
        "POST /v1/nodes/{node}/undrain",
    ),
}
OF_ROUTES = {line: role for role, lines in ROLES.items() for line in lines}
_READS = ("GET", "HEAD")


def role_of(method: str, path: str) -> Role:
    """Return the role that a request requires."""
    if method == "OPTIONS":
        return Role.OPEN
    named = "GET" if method == "HEAD" else method
    role = OF_ROUTES.get(f"{named} {path}")
    if role is None:
        found = (role for pattern, role in _patterns(named) if pattern.fullmatch(path))
        role = next(found, Role.READ if method in _READS else Role.OPERATE)
    return role


@lru_cache
def _patterns(method: str) -> list[tuple[re.Pattern[str], Role]]:
    """Return the patterns of a method's paths with parameters, with their roles."""
    return [
        (pattern_of(line.partition(" ")[2], 0), role)
        for line, role in OF_ROUTES.items()
        if "{" in line and line.startswith(f"{method} ")
    ]

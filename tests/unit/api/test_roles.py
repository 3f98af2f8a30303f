"""Every route has a role in the table, and the table names no route that there is not."""

import pytest
from fastapi.routing import APIRoute
from starlette.routing import Route

from services.api.access.roles import OF_ROUTES, ROLES, Role, role_of
from services.api.routes.app import make_app


def routes_of(routes, prefix=""):
    """Yield method and path of every route, those of included routers too."""
    for route in routes:
        if isinstance(route, APIRoute | Route):
            yield from ((method, prefix + route.path) for method in route.methods)
        else:
            below = prefix + route.include_context.prefix
            yield from routes_of(route.original_router.routes, below)


def lines_of(app):
    return {f"{method} {path}" for method, path in routes_of(app.routes) if method != "HEAD"}


def test_every_route_stands_in_the_table_once_and_no_other_does():
    there = lines_of(make_app(None))
    assert len(there) > 50
    assert there == set(OF_ROUTES)
    assert len(OF_ROUTES) == sum(map(len, ROLES.values()))


def test_a_new_route_without_a_role_is_noticed_and_asks_for_the_most_meanwhile():
    app = make_app(None)

    @app.post("/v1/new")
    async def new() -> None: ...

    assert lines_of(app) - set(OF_ROUTES) == {"POST /v1/new"}
    assert role_of("POST", "/v1/new") is Role.OPERATE
    assert role_of("GET", "/v1/new") is Role.READ


@pytest.mark.parametrize(
    ("method", "path", "role"),
    [
        ("GET", "/", Role.OPEN),
        ("HEAD", "/page/app.js", Role.OPEN),
        ("GET", "/page/a/b", Role.READ),
        ("GET", "/health/ready", Role.OPEN),
        ("POST", "/health/ready", Role.OPERATE),
        ("GET", "/v1/live", Role.READ),
        ("GET", "/v1/applications/a%2Fb", Role.READ),
        ("DELETE", "/v1/applications/x", Role.SUBMIT),
        ("DELETE", "/v1/applications/x\ny", Role.SUBMIT),
        ("DELETE", "/V1/applications/x", Role.OPERATE),  # no route takes it
        ("DELETE", "/v1/applications/x/", Role.OPERATE),
        ("DELETE", "/v1/applications/", Role.OPERATE),
        ("POST", "/v1/manifests", Role.SUBMIT),
        ("POST", "//v1/manifests", Role.OPERATE),
        ("POST", "/v1/manifests/delete", Role.SUBMIT),
        ("POST", "/v1/what-if", Role.READ),
        ("POST", "/ws/v1/validate-conf", Role.READ),
        ("POST", "/v1/config", Role.OPERATE),
        ("POST", "/v1/nodes/n/drain", Role.OPERATE),
        ("GET", "/v1/dead-letters", Role.READ),
        ("GET", "/v1/dead-letters/a-letter", Role.OPERATE),
        ("POST", "/v1/dead-letters/a-letter/replay", Role.OPERATE),
        ("DELETE", "/v1/dead-letters", Role.OPERATE),
        ("PATCH", "/v1/applications", Role.OPERATE),
        ("BREW", "/", Role.OPERATE),
        ("GET", "/nowhere", Role.READ),
        ("OPTIONS", "/v1/config", Role.OPEN),
    ],
)
def test_a_request_needs_a_role_by_its_method_and_path(method, path, role):
    assert role_of(method, path) is role


def test_what_changes_something_needs_more_than_to_read():
    may_post = {"POST /ws/v1/validate-conf", "POST /v1/what-if"}  # they change nothing
    for line, role in OF_ROUTES.items():
        assert line.startswith("GET ") or line in may_post or role >= Role.SUBMIT, line

"""Names with a slash, or whatever else needs an escape, are one part of a path everywhere."""

import re
from typing import cast
from urllib.parse import quote

import httpx
import pytest

from services.api.access.guard import Access
from services.api.access.roles import OF_ROUTES, Role, role_of
from services.api.replica import Replica
from services.api.web.segments import path_by_parts
from shared.messages.interface import UserGroupInformation
from tests.apps import app_of
from tests.builders import config_of
from tests.table import each_row
from tests.unit.api.following import System

PARTITION = "/ws/v1/partition/default"
NOT_ROUTED = "404 page not found\n"
ONE = {"vcore": 1000, "pods": 1}


def system_with_slashes():
    system = System(config_of('{name: "a/b"}', '{name: "c#d@e:f"}'))
    system.node("rack/1", vcore=8000, pods=10)
    owner = UserGroupInformation("team/ann@dom:ain.com", ("g",))
    system.application("app/1", "root.a/b", ugi=owner)
    system.asks("app/1", ["pod/1"], ONE)
    return system


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (f"{PARTITION}/queue/root.a%2Fb", "queuename", "root.a/b"),
        (f"{PARTITION}/queue/root.a%2fb", "queuename", "root.a/b"),
        (f"{PARTITION}/queue/root.a%252Fb", "queuename", "root.a/b"),
        (f"{PARTITION}/queue/root%2Ea%2FB", "queuename", "root.a/b"),
        (f"{PARTITION}/queue/root.c%23d%40e%3Af", "queuename", "root.c#d@e:f"),
        (f"{PARTITION}/queue/root.c%2523d@e:f", "queuename", "root.c#d@e:f"),
        (f"{PARTITION}/queue/root.a%2Fb/application/app%2F1", "applicationID", "app/1"),
        (f"{PARTITION}/application/app%2F1", "applicationID", "app/1"),
        (f"{PARTITION}/usage/user/team%2Fann@dom:ain.com", "userName", "team/ann@dom:ain.com"),
        (f"{PARTITION}/usage/user/team%252Fann%40dom%3Aain.com", "userName", "team/ann@dom:ain.com"),
        (f"{PARTITION}/node/rack%2F1", "nodeID", "rack/1"),
        ("/v1/applications/app%2F1", "applicationID", "app/1"),
        ("/v1/why/app%2F1", "applicationID", "app/1"),
        ("/v1/why/pod%2F1", "applicationID", "app/1"),
        (f"{PARTITION}/%71ueue/root.a%2Fb", "queuename", "root.a/b"),
    ],
)  # fmt: skip
async def test_a_name_with_a_slash_is_asked_for_by_its_escape(path, key, value):
    response = await system_with_slashes().get(path)
    assert response.status_code == 200, response.text
    assert response.json()[key] == value


async def test_the_applications_of_a_queue_with_a_slash():
    system = system_with_slashes()
    for path in ("applications", "applications/active"):
        response = await system.get(f"{PARTITION}/queue/root.a%2Fb/{path}")
        assert [row["applicationID"] for row in response.json()] == ["app/1"]


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        (f"{PARTITION}/queue/root.a%2Fb/", f"{PARTITION}/queue/root.a%2Fb"),
        (f"{PARTITION}/Queue/root.a%252Fb", f"{PARTITION}/queue/root.a%252Fb"),
        (f"{PARTITION}//queue/root.a%2Fb", f"{PARTITION}/queue/root.a%2Fb"),
        (f"{PARTITION}/queue/x/%2E%2E/root.a%2Fb", f"{PARTITION}/queue/root.a%2Fb"),
    ],
)
async def test_a_redirect_keeps_the_escapes_of_a_name(path, sent):
    response = await system_with_slashes().get(path)
    assert (response.status_code, response.headers["location"]) == (301, sent)


async def test_a_slash_that_is_escaped_parts_nothing():
    system = system_with_slashes()
    for path in (f"{PARTITION}%2Fnodes", "/v1%2Fapplications", "/v1/applications/app/1"):
        response = await system.get(path)
        assert (response.status_code, response.text) == (404, NOT_ROUTED)


_NAMED_ROUTES = [line for line in OF_ROUTES if "{" in line]


@pytest.mark.parametrize("line", _NAMED_ROUTES)
async def test_every_route_with_a_parameter_takes_a_name_with_a_slash(line):
    system = system_with_slashes()
    method, path = line.split(" ")
    asked = re.sub(r"\{\w+\}", "a%2Fb%25%2Fc", path)
    with app_of(Replica(lambda: cast("object", None), lambda: system.machine)) as app:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://muster") as client:
            response = await client.request(method, asked)
    assert response.text != NOT_ROUTED
    assert response.status_code not in (301, 308, 405)
    assert role_of(method, path_by_parts(asked)) == OF_ROUTES[line]


def test_a_role_is_judged_by_the_route_that_is_taken():
    assert role_of("DELETE", path_by_parts("/v1/applications/a%2Fb")) is Role.SUBMIT
    assert role_of("POST", path_by_parts("/v1%2Fmanifests")) is Role.OPERATE
    assert role_of("GET", path_by_parts("/page%2Fapp.js")) is Role.READ
    assert role_of("GET", path_by_parts("/page/app%2Ejs")) is Role.OPEN
    assert Access().role_of("GET", path_by_parts("/ws/v1/metrics")) is Role.READ


@each_row("name", ["a/b", "a%b", "a%2Fb", "..", "ä/ö", "a+b", "a b", "a?b#c", "%"])
def test_a_name_s_part_of_a_path_is_one_part_whatever_is_in_it(name):
    assert path_by_parts(f"/v1/why/{quote(name, safe='')}").count("/") == 3

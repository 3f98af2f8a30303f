"""What an API server makes of writes by helm and kubectl: on the double with schemas, and on a real one.

So the double is held to what a real one does: fields that it does not know, patches, who owns what.
"""

from contextlib import suppress

import pytest

from services.shim_adapter.backends.kubernetes.client import (
    MERGE_PATCH,
    STRATEGIC_PATCH,
    ApiClient,
    ApiServerError,
)
from tests.integration.kubernetes.conftest import REAL, Server
from tests.kubernetes.double import Double
from tests.kubernetes.harness import Access, Kubectl
from tests.kubernetes.patches import APPLY, JSON
from tests.kubernetes.versions import NEWEST, OLDEST

MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
VERSIONS = {"double": NEWEST, "oldest-double": OLDEST}


@pytest.fixture(params=[*VERSIONS, REAL])
async def ask(request):
    """Return how to ask: a request whose failure is its code and message."""
    double = None
    if request.param == "real":
        access = request.getfixturevalue("real")
    else:
        double = Double(version=VERSIONS[request.param], by_schemas=True)
        await double.start()
        access = Access(double.url)
    client = ApiClient(access, "tests")
    server = Server(access, client, Kubectl(client), double)
    if double is not None:
        await client.request("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})

    async def asked(method, path, body=None, **query):
        content_type = query.pop("content_type", "application/json")
        return await server.client.request(
            method, path, body, query=query or None, content_type=content_type
        )

    asked.server = server
    yield asked
    for path in (f"{MAPS}/m", f"{DEPLOYMENTS}/d"):
        with suppress(ApiServerError):  # it was never made
            await client.request("DELETE", path)
    await client.close()
    if double is not None:
        await double.stop()


def a_map(**data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data}


def a_deployment(*containers, **spec):
    labels = {"app": "d"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [*containers], **spec}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


def container(name, **more):
    return {"name": name, "image": "pause", **more}


async def test_a_field_that_is_not_known_is_refused_or_dropped_as_it_was_asked(ask):
    await ask.server.needs(27, "fieldValidation")
    wrong = a_deployment(container("c", imagePolicy="Always"))
    with pytest.raises(ApiServerError) as refused:
        await ask("POST", DEPLOYMENTS, wrong, fieldValidation="Strict")
    assert refused.value.code == 400
    assert 'unknown field "spec.template.spec.containers[0].imagePolicy"' in refused.value.message
    made = await ask("POST", DEPLOYMENTS, wrong)
    (kept,) = made["spec"]["template"]["spec"]["containers"]
    assert "imagePolicy" not in kept


async def test_what_is_of_a_wrong_type_or_has_no_namespace_is_refused(ask):
    for path, body, codes in (
        (DEPLOYMENTS, {**a_deployment(container("c")), "spec": {"replicas": "two"}}, (400, 422)),
        (MAPS, {**a_map(), "metadata": {"name": "m", "labels": {"a": "x" * 64}}}, (422,)),
        (MAPS.replace("default", "nowhere"), a_map(), (404,)),
    ):
        with pytest.raises(ApiServerError) as refused:
            await ask("POST", path, body)
        assert refused.value.code in codes


async def test_a_strategic_patch_merges_lists_by_their_keys_and_a_merge_patch_replaces_them(ask):
    await ask("POST", DEPLOYMENTS, a_deployment(container("a"), container("b")))
    path = f"{DEPLOYMENTS}/d"

    def patch(*containers):
        return {"spec": {"template": {"spec": {"containers": [*containers]}}}}

    async def after(body, content_type):
        found = await ask("PATCH", path, body, content_type=content_type)
        containers = found["spec"]["template"]["spec"]["containers"]
        return [(c["name"], c["image"]) for c in containers], found["metadata"]["generation"]

    body = patch({"name": "b", "image": "new"}, {"name": "a", "$patch": "delete"})
    assert await after(body, STRATEGIC_PATCH) == ([("b", "new")], 2)
    assert await after(patch(container("c")), MERGE_PATCH) == ([("c", "pause")], 3)
    assert await after(patch(container("c")), STRATEGIC_PATCH) == ([("c", "pause")], 3)
    step = {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "x"}
    found = await ask("PATCH", path, [step], content_type=JSON)
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "x"
    with pytest.raises(ApiServerError) as refused:
        await ask("PATCH", path, {}, content_type="application/x-patch")
    assert refused.value.code == 415


async def apply(ask, path, body, manager, **query):
    return await ask("PATCH", path, body, fieldManager=manager, content_type=APPLY, **query)


async def test_an_apply_takes_away_what_it_said_before_and_nothing_of_anybody_else(ask):
    path = f"{MAPS}/m"
    await apply(ask, path, a_map(mine="1", old="2"), "ada")
    await ask("PATCH", path, {"data": {"theirs": "3"}}, content_type=MERGE_PATCH)
    found = await apply(ask, path, a_map(mine="1"), "ada")
    assert found["data"] == {"mine": "1", "theirs": "3"}
    owners = {entry["manager"]: entry["operation"] for entry in found["metadata"]["managedFields"]}
    assert owners == {"ada": "Apply", "tests": "Update"}


async def test_a_field_of_somebody_else_is_a_conflict_unless_it_is_the_same_or_forced(ask):
    path = f"{MAPS}/m"
    await apply(ask, path, a_map(a="1"), "ada")
    await ask("PATCH", path, {"data": {"a": "2"}}, content_type=MERGE_PATCH)
    with pytest.raises(ApiServerError) as refused:
        await apply(ask, path, a_map(a="1"), "ada")
    assert refused.value.code == 409
    assert 'conflict with "tests"' in refused.value.message
    assert ".data.a" in refused.value.message
    assert (await apply(ask, path, a_map(a="2"), "ada"))["data"] == {"a": "2"}
    with pytest.raises(ApiServerError):
        await apply(ask, path, a_map(a="3"), "bob")
    forced = await apply(ask, path, a_map(a="3"), "bob", force="true")
    assert forced["data"] == {"a": "3"}
    owners = {entry["manager"] for entry in forced["metadata"]["managedFields"]}
    assert owners == {"bob"}


async def test_items_of_a_list_with_keys_belong_to_who_applied_them(ask):
    path = f"{DEPLOYMENTS}/d"
    await apply(ask, path, a_deployment(container("a"), container("b")), "ada")
    env = [{"name": "X", "value": "1"}]
    theirs = a_deployment({"name": "a", "env": env})
    del (
        theirs["spec"]["replicas"],
        theirs["spec"]["selector"],
        theirs["spec"]["template"]["metadata"],
    )
    await apply(ask, path, theirs, "bob")
    found = await apply(ask, path, a_deployment(container("a"), dnsPolicy="Default"), "ada")
    pod = found["spec"]["template"]["spec"]
    assert [(c["name"], c.get("env")) for c in pod["containers"]] == [("a", env)]
    assert pod["dnsPolicy"] == "Default"


async def test_a_selector_never_changes(ask):
    await ask("POST", DEPLOYMENTS, a_deployment(container("c")))
    labels = {"app": "d", "more": "x"}
    change = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}
    with pytest.raises(ApiServerError) as refused:
        await ask("PATCH", f"{DEPLOYMENTS}/d", {"spec": change}, content_type=STRATEGIC_PATCH)
    assert refused.value.code == 422
    assert "immutable" in refused.value.message

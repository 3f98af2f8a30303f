"""Every test here runs against the double and, when it is asked for, against a real API server.

The double is the newest version of Kubernetes that is supported, and the oldest; in ``make test`` it
is the newest alone for the files of ALIKE, of which no test asks for what the two do otherwise
(tests/kubernetes/versions.py).
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from services.shim_adapter.backends.kubernetes.access import Access
from services.shim_adapter.backends.kubernetes.client import ApiClient, ApiServerError
from tests.kubernetes.double import Double
from tests.kubernetes.harness import Kubectl
from tests.kubernetes.real import cordon, empty, real_access
from tests.kubernetes.versions import NEWEST, OLDEST
from tests.options import OPTION, REAL_GROUP, is_real_asked

FOLDER = Path(__file__).parent
NO_PARAMETERS = SimpleNamespace(params={})


@dataclass
class Server:
    """An API server under test; ``double`` is None when it is a real one."""

    access: Access
    client: ApiClient
    kubectl: Kubectl
    double: Double | None

    async def needs(self, minor: int, what: str) -> None:
        """Skip a test on an API server that is older than 1.minor and has not got ``what``."""
        found = await self.client.request("GET", "/version")
        if (int(found["major"]), int(found["minor"].rstrip("+"))) < (1, minor):
            pytest.skip(f"{what}: since Kubernetes 1.{minor}, this is {found['gitVersion']}")

    async def needs_no_controllers(self, why: str) -> None:
        """Skip a test where a controller manager is at work, which writes statuses of its own."""
        manager = (
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"
        )
        with suppress(ApiServerError):
            await self.client.request("GET", manager)
            pytest.skip(f"{why}: a kube-controller-manager is at work here")


@pytest.fixture(scope="session")
def real(request):
    with real_access(is_asked=request.config.getoption(OPTION)) as access:
        yield access


REAL = pytest.param("real", marks=pytest.mark.xdist_group(REAL_GROUP))
VERSIONS = {"double": NEWEST, "oldest-double": OLDEST}
ALIKE = (
    "border",
    "endings",
    "missing_rights",
    "placeholder_data",
    "pod_groups",
    "refusals",
    "trouble",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the oldest version does as the newest, but where a real server is asked for."""
    if is_real_asked(config):
        return
    alike = {f"test_{name}.py" for name in ALIKE}
    items[:] = [
        item
        for item in items
        if item.path.name not in alike
        or item.path.parent != FOLDER
        or "oldest-double" not in getattr(item, "callspec", NO_PARAMETERS).params.values()
    ]


@pytest.fixture(params=[*VERSIONS, REAL])
async def server(request):
    if request.param == "real":
        access = request.getfixturevalue("real")
        client = ApiClient(access, "tests")
        await cordon(client)
        await empty(client)
        yield Server(access, client, Kubectl(client), None)
        await empty(client)
        await client.close()
        return
    double = Double(bookmark_seconds=0.2, version=VERSIONS[request.param])
    await double.start()
    access = Access(double.url)
    client = ApiClient(access, "tests")
    double.store.create("namespaces", "", {"metadata": {"name": "default"}})
    yield Server(access, client, Kubectl(client), double)
    await client.close()
    await double.stop()


@pytest.fixture
def double(server):
    """Return the double: for what no real server can be told to do."""
    if server.double is None:
        pytest.skip("a real API server cannot be told to fail")
    return server.double

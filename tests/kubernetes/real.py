"""A real API server for the tests: one that there is, or one that they start, when it is asked for.

In this order: the cluster named by KUBECONFIG; the binaries ``etcd`` and ``kube-apiserver`` in the folder
KUBEBUILDER_ASSETS; and with ``make test-kubernetes`` (pytest's option ``--real-api-server``) K3s through
testcontainers. It must be one that tests may use: pods in its namespace ``default`` are deleted, its own
nodes are cordoned.
"""

import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Self

from services.shim_adapter.backends.kubernetes.access import Access, find_access
from services.shim_adapter.backends.kubernetes.client import MERGE_PATCH, ApiServerError
from tests.broker import free_port, image_missing
from tests.kubernetes.harness import TEST_LABEL
from tests.patience import until

_K3S = "rancher/k3s:v1.33.1-k3s1"
_START_SECONDS = 90
_STOP_SECONDS = 10


class ApiServerUnavailableError(RuntimeError):
    """A real API server was asked for and none can be had; the message says what to do."""


@contextmanager
def real_access(*, is_asked: bool) -> Iterator[Access | None]:
    """Give the access to a real API server for as long as it is needed, or None.

    ``is_asked`` stands for the option; the environment's variables ask by being there. Raises
    ApiServerUnavailableError: what was asked for is never passed over in silence.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    if os.environ.get("KUBECONFIG"):
        yield find_access(Path(os.environ["KUBECONFIG"]))
    elif assets:
        with Binaries(Path(assets)) as binaries:
            yield binaries.access
    elif is_asked:
        with _k3s() as access:
            yield access
    else:
        yield None


@contextmanager
def _k3s() -> Iterator[Access]:
    from testcontainers.community.k3s import K3SContainer

    missing = image_missing(_K3S)
    if missing:
        raise ApiServerUnavailableError(
            f"no K3s for the tests: {missing}; set KUBEBUILDER_ASSETS or KUBECONFIG instead"
        )
    with K3SContainer(_K3S) as k3s, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kubeconfig"
        path.write_text(k3s.config_yaml())
        access = find_access(path)
        _wait_for_a_node(access)
        yield access


def _wait_for_a_node(access: Access) -> None:
    """Wait for the cluster's own node, which comes a moment after its API server."""
    for _ in range(_START_SECONDS * 2):
        with suppress(OSError):
            url = f"{access.url}/api/v1/nodes"
            with urllib.request.urlopen(url, context=access.tls, timeout=5) as answer:
                if json.loads(answer.read())["items"]:
                    return
        time.sleep(0.5)
    raise RuntimeError("K3s has no node")


class Binaries:
    """etcd and an API server with a token of an administrator, on ports of their own.

    Each can be killed and started again by its name; what etcd has written stays.
    """

    def __init__(self, assets: Path) -> None:
        if not (assets / "kube-apiserver").exists():
            raise ApiServerUnavailableError(
                f"KUBEBUILDER_ASSETS names {assets}, and there is no kube-apiserver in it"
            )
        self._assets = assets
        self._folder = folder = Path(tempfile.mkdtemp(prefix="muster-apiserver-"))
        client, peer, port = free_port(), free_port(), free_port()
        (folder / "tokens").write_text("muster-tests,admin,admin,system:masters\n")
        key = folder / "sa.key"
        command = ["openssl", "genrsa", "-out", str(key), "2048"]
        subprocess.run(command, check=True, capture_output=True)
        self._options = {
            "etcd": [
                f"--data-dir={folder / 'etcd'}",
                f"--listen-client-urls=http://127.0.0.1:{client}",
                f"--advertise-client-urls=http://127.0.0.1:{client}",
                f"--listen-peer-urls=http://127.0.0.1:{peer}", "--unsafe-no-fsync",
            ],
            "kube-apiserver": [
                f"--etcd-servers=http://127.0.0.1:{client}",
                f"--secure-port={port}", f"--cert-dir={folder / 'certs'}",
                f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
                "--service-account-issuer=https://muster.test",
                f"--token-auth-file={folder / 'tokens'}",
                "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
                "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
                "--service-cluster-ip-range=10.0.0.0/24",
            ],
        }  # fmt: skip
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        url = f"https://127.0.0.1:{port}"
        self.access = Access(url, "default", context, token="muster-tests")

    def __enter__(self) -> Self:
        try:
            for name in self._options:
                self.start(name)
            self.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop both, the API server first, whichever was started last: it does not end without etcd."""
        for name in reversed(self._options):
            if name in self._running:
                self._stop(self._running.pop(name))
        shutil.rmtree(self._folder, ignore_errors=True)

    @staticmethod
    def _stop(process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def start(self, name: str) -> None:
        """Start one of the two."""
        with (self._folder / f"{name}.log").open("ab") as log:
            command = [str(self._assets / name), *self._options[name]]
            self._running[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        """Kill one of the two as a power cut would."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def wait(self) -> None:
        """Wait until the API server is ready."""
        request = urllib.request.Request(
            f"{self.access.url}/readyz", headers={"Authorization": f"Bearer {self.access.token}"}
        )
        for _ in range(_START_SECONDS * 2):
            with suppress(OSError):
                urllib.request.urlopen(request, context=self.access.tls, timeout=2).close()
                return
            time.sleep(0.5)
        raise RuntimeError((self._folder / "kube-apiserver.log").read_text()[-2000:])


async def cordon(client) -> None:
    """Keep our pods off the nodes that the cluster has of its own: they would really run there."""
    for node in (await client.request("GET", "/api/v1/nodes"))["items"]:
        if TEST_LABEL not in (node["metadata"].get("labels") or {}):
            path = f"/api/v1/nodes/{node['metadata']['name']}"
            body = {"spec": {"unschedulable": True}}
            await client.request("PATCH", path, body, content_type=MERGE_PATCH)


async def empty(client, namespace: str = "default") -> None:
    """Delete what tests leave behind: pods of a namespace, nodes of theirs, and small things.

    Its events, too: the next test's pods are called the same. An API server whose etcd was away does
    not answer for every kind at the same time.
    """
    ask = partial(_ask, client)
    within = f"namespaces/{namespace}"
    for path, label in (
        (f"/api/v1/{within}/pods", ""),
        ("/api/v1/nodes", f"{TEST_LABEL}=true"),
        (f"/apis/policy/v1/{within}/poddisruptionbudgets", ""),
        (f"/api/v1/{within}/resourcequotas", ""),
    ):
        query = {"labelSelector": label} if label else None
        for item in (await ask("GET", path, query=query)).get("items") or ():
            body = {"gracePeriodSeconds": 0} if path.endswith("pods") else None
            with suppress(ApiServerError):
                await ask("DELETE", f"{path}/{item['metadata']['name']}", body)
    await ask("DELETE", f"/apis/events.k8s.io/v1/{within}/events")
    for path in (
        f"/api/v1/{within}/configmaps/yunikorn-configs",
        f"/apis/coordination.k8s.io/v1/{within}/leases/l",
    ):
        with suppress(ApiServerError):
            await ask("DELETE", path)


async def _ask(client, method: str, path: str, body=None, *, query=None):
    """Ask until the server answers, and return that. Raises ApiServerError: it says no."""
    found = []

    async def is_answered() -> bool:
        try:
            found.append(await client.request(method, path, body, query=query))
        except ApiServerError as error:
            if not error.is_transient:
                raise
        return bool(found)

    await until(is_answered, f"an answer to {method} {path}", pause=0.5)
    return found[0]

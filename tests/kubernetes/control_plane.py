"""An API server and its etcd as processes that can be killed and started again.

The double is one process, and its journal is its etcd: killed with -9 it loses nothing that it had
answered, as etcd does not. The kill of etcd alone is what an API server answers meanwhile
(``Double.lose_storage``). Of binaries both are real; a cluster that is there anyway cannot be killed.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from services.shim_adapter.backends.kubernetes.access import Access
from services.shim_adapter.backends.kubernetes.client import ApiServerError
from tests.broker import free_port
from tests.kubernetes.harness import ApiClient
from tests.kubernetes.real import Binaries, real_access
from tests.patience import until

API_SERVER, ETCD = "API server", "etcd"
_ROOT = Path(__file__).parents[2]


class ControlPlane:
    """One that is there: nothing of it can be killed."""

    mortal: tuple[str, ...] = ()

    def __init__(self, access: Access) -> None:
        self.access = access

    async def kill(self, what: str) -> None:
        raise AssertionError(f"{what} cannot be killed from here")

    async def restore(self, what: str) -> None:
        raise AssertionError(f"{what} cannot be started from here")


class OfBinaries(ControlPlane):
    """kube-apiserver and etcd of KUBEBUILDER_ASSETS."""

    mortal = (API_SERVER, ETCD)
    _PROGRAMS = {API_SERVER: "kube-apiserver", ETCD: "etcd"}  # noqa: RUF012

    def __init__(self, binaries: Binaries) -> None:
        super().__init__(binaries.access)
        self._binaries = binaries

    async def kill(self, what: str) -> None:
        self._binaries.kill(self._PROGRAMS[what])

    async def restore(self, what: str) -> None:
        self._binaries.start(self._PROGRAMS[what])
        await asyncio.to_thread(self._binaries.wait)


class OfTheDouble(ControlPlane):
    """The double as a process with a journal."""

    mortal = (API_SERVER, ETCD)

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        super().__init__(Access(f"http://127.0.0.1:{self._port}"))

    async def start(self) -> None:
        log = (self._folder / "double.log").open("ab")
        journal = str(self._folder / "journal")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kubernetes.double", str(self._port), journal],
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            stdout=log,
            stderr=log,
        )
        client = ApiClient(self.access, "tests")

        async def answers() -> bool:
            try:
                await client.request("GET", "/readyz")
            except ApiServerError:
                return False
            return True

        try:
            await until(answers, "the double answers")
        finally:
            await client.close()

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    async def kill(self, what: str) -> None:
        if what == ETCD:
            await self._tell("lose_storage")
        else:
            self.stop()

    async def restore(self, what: str) -> None:
        if what == ETCD:
            await self._tell("regain_storage")
        else:
            await self.start()

    async def _tell(self, what: str) -> None:
        async with httpx.AsyncClient() as client:
            answer = await client.post(f"{self.access.url}/double/{what}", timeout=60)
            answer.raise_for_status()


@asynccontextmanager
async def control_plane(folder: Path, *, is_real: bool) -> AsyncIterator[ControlPlane]:
    """Give the double's, or that of the real API server that the environment names."""
    if not is_real:
        double = OfTheDouble(folder)
        await double.start()
        try:
            yield double
        finally:
            double.stop()
        return
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    if assets and not os.environ.get("KUBECONFIG"):
        with Binaries(Path(assets)) as binaries:
            yield OfBinaries(binaries)
        return
    with real_access(is_asked=True) as access:
        assert access is not None
        yield ControlPlane(access)

"""Run the admission webhook: ``python -m services.shim_adapter.admission``.

It listens on MUSTER_ADMISSION_PORT, in the cluster of MUSTER_KUBECONFIG or of its pod. It is ready
when namespaces, priority classes and ConfigMaps are listed and the API server trusts its
certificate. Exit status: 0 after SIGTERM or SIGINT, 78 for an invalid environment, 1 when a part
ended.
"""

import asyncio
import signal
import sys
from contextlib import suppress
from dataclasses import replace

import structlog
from aiohttp import web

from services.shim_adapter.admission.keeper import Keeper
from services.shim_adapter.admission.server import make_app
from services.shim_adapter.admission.watching import Watching
from services.shim_adapter.backends.kubernetes.access import Access, AccessError, find_access
from services.shim_adapter.backends.kubernetes.client import ApiClient
from shared.runtime.health import serve_health
from shared.runtime.logs import set_up_logs
from shared.runtime.service import EXIT_CONFIGURATION, EXIT_ENDED
from shared.runtime.settings import Settings, SettingsError, load_settings

AGENT = "muster-admission"
_LAST_ANSWERS_SECONDS = 5.0
log = structlog.get_logger("muster.admission")


async def serve(access: Access, settings: Settings, stopping: asyncio.Event) -> bool:
    """Serve until stopped, or until a part ends; return whether it was stopped."""
    client = ApiClient(access, AGENT)
    names = [name for name in settings.admission_names.split(",") if name]
    watching, keeper = Watching(client), Keeper(client, names)
    runner = web.AppRunner(
        make_app(watching), access_log=None, shutdown_timeout=_LAST_ANSWERS_SECONDS
    )
    health = None
    if settings.health_port:
        health = await serve_health(
            settings.health_host,
            settings.health_port,
            lambda: watching.is_ready and keeper.is_ready.is_set(),
        )
    parts = {asyncio.create_task(watching.run()), asyncio.create_task(keeper.run())}
    stop = asyncio.create_task(stopping.wait())
    try:
        ready = asyncio.create_task(_until_ready(watching, keeper))
        await asyncio.wait({ready, stop, *parts}, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            await runner.setup()
            host, port = settings.admission_host, settings.admission_port
            await web.TCPSite(runner, host, port, ssl_context=keeper.context).start()
            log.info("answering", host=host, port=port, names=keeper.names)
            await asyncio.wait({stop, *parts}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        return stop.done()
    finally:
        await runner.cleanup()
        if health is not None:
            health.close()
        for task in (*parts, stop):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await client.close()


async def _until_stopped(access: Access, settings: Settings) -> bool:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return await serve(access, settings, stopping)


async def _until_ready(watching: Watching, keeper: Keeper) -> None:
    for reflector in watching.reflectors:
        await reflector.is_listed.wait()
    await keeper.is_ready.wait()


def main() -> None:
    """Run until stopped."""
    try:
        settings = load_settings()
        set_up_logs(settings.log_format, settings.log_level)
        access = find_access(settings.kubeconfig, settings.kubernetes_url)
    except (SettingsError, AccessError, OSError) as error:
        print(f"muster admission: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_CONFIGURATION)
    namespace = settings.kubernetes_namespace or access.namespace
    if not asyncio.run(_until_stopped(replace(access, namespace=namespace), settings)):
        sys.exit(EXIT_ENDED)


if __name__ == "__main__":
    main()

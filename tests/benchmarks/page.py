"""The live page in Chromium, while a cluster changes below it.

    make bench-page                             5,000 nodes, 50,000 pods, 1,000 changes a second, a minute
    make bench-page ARGS="--minutes 10"         the figures of docs/performance.md
    make bench-page ARGS="--view applications"  another view than the overview

A process of its own tells a replica of the API what changes and serves it; a headless Chromium has the
page open. Printed: when something was painted first and when the cluster was; the frames, from one
animation frame to the next; the tasks of the page's main thread that Chromium counts as long, over 50 ms by
the clock; the longest task by the CPU time of that thread, traced for TRACED_SECONDS of each minute; and the
heap after a collection, each minute. By the clock a task is also long when the machine is busy with
something else; by its CPU time it is not.
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection

from playwright.async_api import Browser, Page

from tests.ui.browser import browser
from tests.ui.clusters import Cluster, served

STEP_SECONDS = 0.1
TRACED_SECONDS = 15
WATCH = """
globalThis.frames_ = []; globalThis.long_ = []; globalThis.work_ = [];
new PerformanceObserver((list) => list.getEntries().forEach((e) => long_.push(e.duration))).observe({type: "longtask", buffered: true});
new PerformanceObserver((list) => list.getEntries().forEach((e) => work_.push(e.duration))).observe({type: "long-animation-frame", buffered: true});
let last_ = 0;
const tick_ = (now) => { if (last_) frames_.push(now - last_); last_ = now; requestAnimationFrame(tick_); };
requestAnimationFrame(tick_);
"""


def serve_cluster(pipe: Connection, nodes: int, pods: int, applications: int, rate: int) -> None:
    """Serve a cluster that changes, until told to stop; then say how much changed."""

    async def run() -> None:
        cluster = Cluster(nodes, pods, applications, now_ns=time.time_ns())
        cluster.tell_all()
        async with served(cluster.machine) as url:
            pipe.send(url)
            began = due = time.monotonic()
            while not pipe.poll():
                due += STEP_SECONDS
                if rate:
                    cluster.churn(int(rate * STEP_SECONDS))
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            pipe.send(
                (
                    2 * cluster.changes / (time.monotonic() - began),
                    time.process_time() / (time.monotonic() - began),
                )
            )

    asyncio.run(run())


async def measure(url: str, view: str, minutes: int) -> None:
    async with browser("--enable-precise-memory-info") as chromium:
        page = await chromium.new_page(viewport={"width": 1440, "height": 900})
        await page.add_init_script(WATCH)
        await page.goto(f"{url}/?measure#/{view}")
        while not await page.evaluate("performance.getEntriesByName('shown').length"):
            await asyncio.sleep(0.05)
        paint = await page.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        )
        shown = await page.evaluate("performance.getEntriesByName('shown')[0].startTime")
        print(
            f"first paint {paint:.0f} ms, the cluster {shown:.0f} ms after the address was entered"
        )
        devtools = await page.context.new_cdp_session(page)
        await page.wait_for_timeout(2_000)
        opening = await page.evaluate(
            "long_.splice(0).concat(work_.splice(0)).concat(frames_.splice(0).slice(0, 0))"
        )
        print(f"while it opened: long tasks and frames {[round(ms) for ms in opening]} ms")
        gaps: list[float] = []
        tasks: list[float] = []
        spent: list[float] = []
        for minute in range(minutes + 1):
            await devtools.send("HeapProfiler.collectGarbage")
            heap = await devtools.send("Runtime.getHeapUsage")
            elements = await page.evaluate("document.querySelectorAll('*').length")
            print(
                f"minute {minute}: heap {heap['usedSize'] / 2**20:.1f} MiB, {elements} elements",
                flush=True,
            )
            await page.evaluate("frames_.splice(0), long_.splice(0), work_.splice(0), 0")
            if minute < minutes:
                before = await _numbers(page)
                spent += await _task_cpu_ms(chromium, page)
                await page.wait_for_timeout((60 - TRACED_SECONDS) * 1_000)
                after = await _numbers(page)
                gaps += await page.evaluate("frames_.splice(0)")
                tasks += await page.evaluate("long_.splice(0)")
        print(f"differences a second {(after - before) / 60:.1f}")
        cut = statistics.quantiles(gaps, n=1000)
        print(
            f"frames {len(gaps)}: median {cut[499]:.1f} ms, p99 {cut[989]:.1f}, p99.9 {cut[998]:.1f}, longest {max(gaps):.1f}"
        )
        worst = ", ".join(f"{ms:.1f}" for ms in sorted(spent)[-3:])
        print(f"longest tasks of {len(spent)} by their CPU time: {worst} ms")
        print(
            f"tasks of the page over 50 ms by the clock: {len(tasks)}"
            + (f", the longest {max(tasks):.0f} ms" if tasks else "")
        )


async def _task_cpu_ms(chromium: Browser, page: Page) -> list[float]:
    """Trace the page for a while; return the CPU time of each task of its main thread."""
    await chromium.start_tracing(page=page, categories=["toplevel"])
    await page.wait_for_timeout(TRACED_SECONDS * 1_000)
    events = json.loads(await chromium.stop_tracing())["traceEvents"]
    threads = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    return [
        event.get("tdur", 0) / 1_000
        for event in events
        if event["name"] == "ThreadControllerImpl::RunTask"
        and (event["pid"], event["tid"]) in threads
    ]


async def _numbers(page) -> int:
    return await page.evaluate("muster.live.number")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--applications", type=int, default=400)
    parser.add_argument("--rate", type=int, default=1_000, help="changes a second")
    parser.add_argument("--minutes", type=int, default=1)
    parser.add_argument("--view", default="", help="what stands after #/ in the address")
    options = parser.parse_args()
    pipe, theirs = multiprocessing.Pipe()
    arguments = (theirs, options.nodes, options.pods, options.applications, options.rate)
    server = multiprocessing.get_context("spawn").Process(
        target=serve_cluster, args=arguments, daemon=True
    )
    server.start()
    print(
        f"{options.nodes} nodes, {options.pods} pods, {options.applications} applications, #/{options.view}"
    )
    asyncio.run(measure(pipe.recv(), options.view, options.minutes))
    pipe.send(None)
    changes, busy = pipe.recv()
    print(f"changes a second {changes:.0f}; the server with its cluster used {busy:.2f} cores")
    server.join(10)


if __name__ == "__main__":
    main()

"""Pictures of every view: both themes, three widths, few nodes and many, into a folder.

make ui-shots                      into build/ui-shots
make ui-shots ARGS="FOLDER events" another folder, only the views that start with a word
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.async_api import Browser, expect

from tests.ui.browser import browser
from tests.ui.clusters import Cluster, served

HOUR_NS = 3_600_000_000_000
FOLDER = Path("build/ui-shots")
WIDTHS = {"wide": 1440, "terminal": 720, "phone": 390}
VIEWS = {
    "overview": "", "queues": "queues", "queue": "queues/root.ml", "applications": "applications",
    "application": "applications/train-4", "nodes": "nodes?group=rackname", "node": "nodes/node-0001",
    "users": "users", "evictions": "evictions", "events": "events", "what-if": "what-if?drain=node-0001",
}  # fmt: skip


def clusters() -> Iterator[tuple[str, Cluster]]:
    """Yield a small and a large cluster, on which something has happened."""
    for name, nodes, pods, applications in (("5", 5, 48, 9), ("5000", 5_000, 50_000, 400)):
        cluster = Cluster(nodes, pods, applications, now_ns=time.time_ns() - HOUR_NS)
        cluster.tell_all()
        cluster.pass_minutes(35, 20)
        cluster.evict(
            0,
            4,
            "priority",
            "preempted for application train-4, which has the higher priority 9",
            2,
        )
        cluster.pass_minutes(5, 20)
        cluster.evict(
            1,
            4,
            "guarantee",
            "Preempted by ask-4-1 from application train-4 in root.research.vision",
            1,
        )
        cluster.evict(
            3, 2, "reclaim", "reclaimed for application train-2, which is below its fair share", 3
        )
        cluster.evict(
            5,
            -1,
            "quota",
            "preempting allocations to enforce new max quota for queue: root.ml.train",
            1,
        )
        cluster.pass_minutes(20, 20)
        yield name, cluster


async def take(chromium: Browser, url: str, size: str, folder: Path, wanted: str) -> None:
    """Take the pictures of one cluster."""
    for theme in ("light", "dark"):
        for width, pixels in WIDTHS.items():
            context = await chromium.new_context(
                color_scheme=theme, viewport={"width": pixels, "height": 900}
            )
            page = await context.new_page()
            for name, view in VIEWS.items():
                if not name.startswith(wanted):
                    continue
                await page.goto(f"{url}/#/{view}")
                await expect(page.locator("#status")).to_have_text("live")
                await page.wait_for_timeout(600)  # what a view asks for by itself has come
                path = folder / f"{name}-{size}-{width}-{theme}.png"
                await page.screenshot(path=path)
                print(path)
            await context.close()


async def main(folder: Path, wanted: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    async with browser() as chromium:
        for size, cluster in clusters():
            async with served(cluster.machine) as url:
                await take(chromium, url, size, folder, wanted)


if __name__ == "__main__":
    arguments = [*sys.argv[1:], *("", "")[len(sys.argv[1:]) :]]
    asyncio.run(main(Path(arguments[0]) if arguments[0] else FOLDER, arguments[1]))

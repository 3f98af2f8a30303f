"""A picture of every view for the documentation, of a Muster that runs: four on a sheet.

muster up --demo --racks 5 --blocks 2          in one terminal, for some minutes
make ui-sheets                                 in another: into docs/pictures/views

A sheet shows a view at 1,440 and at 390 pixels, light and dark.
"""

import asyncio
import json
import sys
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, expect

from tests.ui.browser import browser

FOLDER = Path("docs/pictures/views")
URL = "http://127.0.0.1:9080"
HEIGHT, WIDE, NARROW = 900, 1440, 390
SCALE = 0.5  # of a picture on its sheet
QUALITY = 82  # of the JPEG


def views(url: str) -> dict[str, str]:
    """Return the views by name, of things that are there: an application that waits before others."""
    rows: list[dict[str, Any]] = _get(url, "/v1/applications")
    live = [row for row in rows if not row["hasEnded"]]
    gangs = [row for row in live if row["placeholders"]["wanted"]]
    one = next((row for row in gangs if row["waiting"]), (gangs or live or rows)[-1])
    node = _get(url, "/ws/v1/partition/default/nodes")[0]["nodeID"]
    return {
        "overview": "",
        "queues": "queues",
        "queue": f"queues/{one['queueName']}",
        "applications": "applications",
        "application": f"applications/{one['applicationID']}",
        "nodes": "nodes",
        "node": f"nodes/{node}",
        "users": "users",
        "user": f"users/{one['user']}",
        "evictions": "evictions",
        "events": "events",
        "what-if": f"what-if?drain={node}",
    }


def _get(url: str, path: str) -> Any:
    with urllib.request.urlopen(f"{url}{path}") as answer:
        return json.load(answer)


async def take(chromium: Browser, url: str, view: str) -> list[bytes]:
    """Return the four pictures of a view: light and dark, wide, then narrow."""
    found = []
    for width in (WIDE, NARROW):
        for scheme in ("light", "dark"):
            context = await chromium.new_context(
                color_scheme=scheme, viewport={"width": width, "height": HEIGHT}
            )
            page = await context.new_page()
            await page.goto(f"{url}/#/{view}")
            await expect(page.locator("#status")).to_have_text("live")
            await page.wait_for_timeout(1500)  # what a view asks for by itself has come
            found.append(await page.screenshot())
            await context.close()
    return found


async def put_together(chromium: Browser, pictures: list[bytes], file: Path) -> None:
    """Write a sheet."""
    gap, height = 12, int(HEIGHT * SCALE)
    widths = [int(width * SCALE) for width in (WIDE, WIDE, NARROW, NARROW)]
    size = {"width": sum(widths) + 5 * gap, "height": height + 2 * gap}
    context = await chromium.new_context(viewport=size)
    page = await context.new_page()
    await page.set_content(
        f"<body style='margin:{gap}px;display:flex;gap:{gap}px;background:#888'></body>"
    )
    for picture, width in zip(pictures, widths, strict=True):
        await page.evaluate(
            "async ([bytes, width, height]) => {"
            "  const image = new Image(width, height);"
            "  image.src = `data:image/png;base64,${bytes}`;"
            "  await image.decode();"
            "  document.body.append(image);"
            "}",
            [_base64(picture), width, height],
        )
    await page.screenshot(path=file, type="jpeg", quality=QUALITY)
    await context.close()


def _base64(picture: bytes) -> str:
    return b64encode(picture).decode()


async def main(url: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    async with browser() as chromium:
        for name, view in views(url).items():
            file = folder / f"{name}.jpg"
            await put_together(chromium, await take(chromium, url, view), file)
            print(file)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2] or [URL], FOLDER))

"""What the page changes, over a whole system in one process, once it has said what would happen."""

import re
from hashlib import sha256

import pytest
import pytest_asyncio
from playwright.async_api import expect

from services.api.access.guard import Access
from services.api.access.tokens import TokensFile
from services.api.replica import Replica
from services.cli.launcher import LocalCluster
from services.shim_adapter.service import ShimOptions
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.runtime.clock import SystemClock
from tests.builders import config_of
from tests.ui.clusters import Cluster, served, served_of
from tests.ui.test_accessible import VIOLATIONS

pytestmark = pytest.mark.asyncio(loop_scope="session")
JOB = """
kind: Job
apiVersion: batch/v1
metadata: {name: %s}
spec:
  completions: %d
  parallelism: %d
  template:
    metadata:
      labels: {applicationId: %s, queue: root.a}
    spec:
      schedulerName: yunikorn
      containers: [{name: c, resources: {requests: {cpu: "2"}}}]
"""
QUEUES = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: a
          - name: fresh
"""


@pytest_asyncio.fixture(loop_scope="session")
async def page(tab):
    """Yield the page of a system of two nodes with two pods' room each."""
    broker = MemoryBroker()
    options = ShimOptions(
        config=config_of("{name: a}"),
        nodes=2,
        node_capacity={"vcore": 4000, "memory": 2**30, "pods": 9},
        default_run_ns=0,
    )
    cluster = LocalCluster(lambda: MemoryBus(broker), SystemClock(), options)
    await cluster.start()
    replica = Replica(lambda: cluster.running["api"].host, lambda: cluster.api, beats=True)
    async with served_of(replica) as url:
        tab.here = url
        await tab.goto(f"{url}/#/what-if")
        await expect(tab.locator("#status")).to_have_text("live")
        yield tab
        await tab.goto("about:blank")  # which ends its stream
    await cluster.stop()


async def forecast(page, label, text):
    await page.goto("about:blank")
    await page.goto(f"{page.here}/#/what-if")
    await page.get_by_label(label, exact=True).fill(text)
    await page.get_by_role("button", name="Forecast").click()
    await expect(page.locator("main .sentence")).to_be_visible()


async def confirm(page, button, label, *says):
    """Press a button, read what its dialog says, confirm it, and close the dialog."""
    await page.get_by_role("button", name=button).click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.locator(".sentence")).to_be_visible()
    for one in says:
        await expect(dialog).to_contain_text(one)
    assert await page.evaluate(VIOLATIONS) == []
    await dialog.get_by_role("button", name=label).click()
    await expect(dialog.get_by_role("button", name="Close")).to_be_focused()
    done = await dialog.get_by_role("status").inner_text()
    await dialog.get_by_role("button", name="Close").click()
    await expect(dialog).to_have_count(0)
    return done


async def test_a_manifest_is_submitted_an_application_deleted_after_what_would_happen(page):
    await forecast(page, "Submit this manifest", JOB % ("first", 4, 4, "first"))
    done = await confirm(page, "Submit the manifest…", "Submit", "first would start 4 of 4 pods.")
    assert done == "Submitted: first."
    await forecast(page, "Submit this manifest", JOB % ("second", 2, 2, "second"))
    await confirm(page, "Submit the manifest…", "Submit", "second would wait")
    await page.goto(f"{page.here}/#/applications/first")
    done = await confirm(
        page, "Delete…", "Delete", "4 pods of it are deleted", "second would start 2 of 2 pods."
    )
    assert done == "Application first is deleted."
    await page.goto(f"{page.here}/#/applications/second")
    await expect(page.get_by_label("2 running")).to_be_visible()


async def test_a_node_is_drained_and_undrained_from_its_page(page):
    await page.goto(f"{page.here}/#/nodes/node-0000")
    said = "No new pods are placed on it."
    assert "takes no new pods" in await confirm(page, "Drain…", "Drain", said)
    await expect(page.locator(".facts-line")).to_contain_text("drained: takes no pods")
    await page.get_by_role("button", name="Undrain…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Undrain").click()
    await expect(page.locator(".facts-line")).to_contain_text(re.compile("^takes pods"))


async def test_queues_are_applied_after_a_forecast(page):
    await forecast(page, "Apply these queues", QUEUES)
    done = await confirm(page, "Apply the queues…", "Apply", "root.fresh would come")
    assert done == "The queues are applied."
    await page.goto(f"{page.here}/#/queues/root.fresh")
    await expect(page.locator(".facts-line")).to_contain_text("leaf")


async def test_a_change_that_is_cancelled_or_refused_changes_nothing(page):
    await forecast(page, "Drain", "node-0001")
    await page.get_by_role("button", name="Drain…").click()
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.goto(f"{page.here}/#/nodes/node-0001")
    await expect(page.locator(".facts-line")).to_contain_text(re.compile("^takes pods"))
    broken = JOB.replace('"2"', '"-2"') % ("third", 1, 1, "third")
    await page.goto("about:blank")
    await page.goto(f"{page.here}/#/what-if")
    await page.get_by_label("Submit this manifest").fill(broken)
    await page.get_by_role("button", name="Forecast").click()
    await page.get_by_role("button", name="Submit the manifest…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Submit").click()
    await expect(dialog.get_by_role("status")).to_contain_text("Not done: ")


@pytest.mark.parametrize(("role", "offers"), [("read", 0), ("submit", 1), ("operate", 2)])
async def test_a_role_sees_the_changes_that_it_may_make(tab, tmp_path, role, offers):
    path = tmp_path / "tokens"
    path.write_text(f"ada {role} {sha256(b'a-token').hexdigest()}\n")
    cluster = Cluster(nodes=5, pods=20, applications=6)
    cluster.tell_all()
    async with served(cluster.machine, access=Access([TokensFile(path)])) as url:
        await tab.goto(f"{url}/#/nodes/node-0001")
        await tab.get_by_label("Token").fill("a-token")
        async with tab.expect_response("**/v1/whoami"):
            await tab.get_by_role("button", name="Go on").click()
        await expect(tab.locator("h1")).to_have_text("node-0001")
        await expect(tab.get_by_role("button", name="Drain…")).to_have_count(int(offers == 2))
        await tab.goto(f"{url}/#/applications/train-4")
        await expect(tab.locator("h1")).to_contain_text("train-4")
        await expect(tab.get_by_role("button", name="Delete…")).to_have_count(int(offers >= 1))
        await tab.goto("about:blank")

"""The past on the page: the last hour of the cluster and of a queue, the timeline of a gang.

A picture says what it shows in words, too, for those who do not see it.
"""

import re
import time
from dataclasses import replace

import pytest
import pytest_asyncio
from playwright.async_api import expect

from shared.messages.state import ConfigurationState, StateDelta, UsageState, UserState
from tests.ui.clusters import POD, Cluster, served, times
from tests.ui.test_accessible import VIOLATIONS
from tests.ui.test_page import Shown

pytestmark = pytest.mark.asyncio(loop_scope="session")
TEN_MINUTES_NS = 600_000_000_000


@pytest_asyncio.fixture(loop_scope="session")
async def page(tab):
    """Yield a page on a small cluster as it was ten minutes ago."""
    cluster = Cluster(nodes=5, pods=20, applications=6, now_ns=time.time_ns() - TEN_MINUTES_NS)
    cluster.tell_all()
    async with served(cluster.machine) as url:
        shown = Shown(tab, url, cluster)
        yield shown
        shown.leave()
    assert not shown.complaints


def picture(page, title):
    return page.page.locator("figure.history", has_text=title)


async def test_the_overview_shows_what_the_last_hour_was_like(page):
    await page.open()
    await expect(page.page.get_by_text("The first half minute is being recorded.")).to_be_visible()
    page.cluster.pass_minutes(2, 4)
    page.cluster.evict(0, 4, "priority", "preempted for application train-4", pods=2)
    page.cluster.pass_minutes(2, 4)
    await page.open("queues")  # the view is made again, and asks again
    await expect(page.page.locator("h1")).to_have_text("Queues")
    await page.open()
    used = picture(page, "GPU in use")
    await expect(used).to_contain_text("18 of 80")
    said = await used.get_by_role("img").get_attribute("aria-label")
    assert "first 20 of 80, at most 20 of 80, now 18 of 80" in said
    await expect(picture(page, "Pods waiting")).to_contain_text("4 pods")
    await expect(picture(page, "Pods evicted")).to_contain_text("2 pods in this hour")


async def test_the_choice_of_a_resource_holds_for_the_hour(page):
    page.cluster.pass_minutes(2, 4)
    await page.open()
    await expect(picture(page, "GPU in use")).to_be_visible()
    await page.page.get_by_label("Resource").select_option("memory")
    await expect(picture(page, "Memory in use")).to_contain_text("0.9 of 7.5 TiB")


async def test_a_queue_shows_its_own_hour_and_what_it_was_at_a_time(page):
    page.cluster.pass_minutes(1, 4)
    page.cluster.evict(0, 4, "priority", "preempted for application train-4", pods=1)
    page.cluster.pass_minutes(1, 4)
    await page.open("queues/root.ml.train")
    used = picture(page, "GPU in use")
    await expect(used).to_be_visible()
    now = await used.locator(".says").inner_text()
    box = await used.locator("svg").bounding_box()
    await page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    await expect(used.locator(".says")).to_contain_text(":")
    await page.page.mouse.move(0, 0)
    await expect(used.locator(".says")).to_have_text(now)
    await expect(picture(page, "Pods evicted")).to_contain_text("1 pod in this hour")
    await page.open("queues/root.research")
    await expect(picture(page, "Pods evicted")).to_contain_text("0 pods in this hour")


async def test_a_user_shows_their_own_hour(page):
    page.cluster.pass_minutes(1, 4)
    page.cluster.evict(0, 4, "priority", "preempted for application train-4", pods=1)
    page.cluster.pass_minutes(1, 4)
    await page.open("users/user-0")
    await expect(picture(page, "GPU in use")).to_be_visible()
    await expect(picture(page, "Pods evicted")).to_contain_text("1 pod in this hour")
    await page.open("users/user-1")
    await expect(picture(page, "Pods evicted")).to_contain_text("0 pods in this hour")
    await page.open("users/somebody")
    await expect(page.page.locator(".past .note")).to_be_visible()


async def test_a_group_shows_its_own_hour_and_what_it_uses(page):
    of_team = [replace(page.cluster.application(n), group="team") for n in (0, 1)]
    limit = {"vcore": 64_000}
    use = UsageState("root", times(POD, 8), limit)
    page.cluster.tell_more(applications=tuple(of_team), users=(UserState("team", True, (use,)),))
    page.cluster.pass_minutes(2, 0)
    await page.open("users")
    await page.page.get_by_role("link", name="team", exact=True).click()
    await expect(page.page.locator("h1")).to_have_text("team")
    await expect(page.page.get_by_text("2 applications counted for this group")).to_be_visible()
    await expect(page.page.locator("td").nth(2)).to_have_text("64\u202fcores")
    await expect(page.page.locator(".row.linked")).to_have_count(2)
    await expect(picture(page, "Pods waiting")).to_be_visible()
    await page.open("groups/none")
    await expect(page.page.get_by_text("Nothing of this group was live")).to_be_visible()


async def test_usage_over_time_stands_beside_what_is_used_now(page):
    await page.open("queues/root.ml.train")
    await expect(page.page.get_by_role("heading", name="Usage over time")).to_have_count(0)
    (queue,) = [one for one in page.cluster.queues() if one.path == "root.ml.train"]
    ppm = {"vcore": 254_000}
    owns = UsageState(queue.path, times(POD, 4), used_ppm={"vcore": 100_000})
    page.cluster.tell_more(
        configurations=(ConfigurationState("", {"usageHalfLife": "168h"}),),
        queues=(replace(queue, used_ppm=ppm, fair_share={"vcore": 96_000}, weight_ppm=ppm),),
        users=(UserState("user-0", False, (owns,)),),
    )
    await page.open("queues")
    await page.open("queues/root.ml.train")
    table = page.page.locator("section", has_text="Usage over time").locator("table").first
    await expect(table).to_contain_text("CPU")
    await expect(table).to_contain_text("25.4\u202f%")
    await expect(table).to_contain_text("96\u202fcores")
    await expect(page.page.get_by_text("every 168h half of it is forgotten")).to_be_visible()
    await page.page.get_by_role("link", name="user-0", exact=True).first.click()
    await expect(page.page.locator("h1")).to_have_text("user-0")
    section = page.page.locator("section", has_text="Usage over time")
    await expect(section.locator("tbody tr")).to_contain_text(["root.ml.train"])
    await expect(section.locator("tbody")).to_contain_text("10.0\u202f%")
    assert await page.page.evaluate(VIOLATIONS) == []


async def test_a_gang_shows_what_became_of_its_members_when(page):
    await page.open("applications/train-4")
    timeline = page.page.locator(".timeline")
    picture_of = timeline.get_by_role("img")
    await expect(picture_of).to_have_attribute("aria-label", re.compile("at the end 3 running$"))
    await expect(timeline).to_contain_text("7 members")
    await expect(timeline).to_contain_text("is not known to this replica")
    for at in range(2):
        page.cluster.now_ns += 60_000_000_000
        page.cluster.placed.append(page.cluster.allocation(900 + at, 2, 4))
        page.cluster.seq += 1
        page.cluster.wants[4] -= 1
        done = replace(page.cluster.ask(4, at), removed=True)
        page.cluster.tell(
            StateDelta(
                time_ns=page.cluster.now_ns,
                applications=(page.cluster.application(4),),
                asks=(done,),
                allocations=(page.cluster.placed[-1],),
            )
        )
    await expect(picture_of).to_have_attribute("aria-label", re.compile("at the end 5 running$"))
    page.cluster.evict(4, 0, "priority", "preempted for application train-0", pods=2)
    await expect(timeline.locator(".milestones")).to_contain_text("2 pods evicted")
    await expect(timeline.locator(".legend")).to_contain_text("evicted")


async def test_what_is_no_gang_has_no_timeline(page):
    await page.open("applications/train-5")
    await expect(page.page.locator("h1")).to_contain_text("train-5")
    await expect(page.page.get_by_role("heading", name="Messages")).to_be_visible()
    await expect(page.page.locator(".timeline")).to_be_hidden()

"""What somebody sees who opens the page: each view, live, right again after trouble, by keyboard too."""

import asyncio
import re
from dataclasses import replace
from itertools import product

import pytest
import pytest_asyncio
from playwright.async_api import expect

from services.api.machine import ApiMachine
from services.api.routes.live import FRAME_SECONDS
from shared.messages.envelope import API_ALL, Envelope
from shared.messages.protocol import Partitions
from shared.messages.state import ConfigurationState, EventState, StateDelta, Waiting
from tests.broker import free_port
from tests.patience import until
from tests.ui.clusters import START_NS, Cluster, served

pytestmark = pytest.mark.asyncio(loop_scope="session")
VIEWS = (
    "",
    "queues",
    "queues/root.ml",
    "applications",
    "applications/train-4",
    "nodes",
    "nodes/node-0001",
    "users",
    "users/ada",
    "groups/team",
    "evictions",
    "events",
    "what-if",
)


ROWS = ".row:visible"
# what a browser says by itself: of each such answer, and when the machine's interfaces change
NOT_THE_PAGES = ("404 (Not Found)", "net::ERR_NETWORK_CHANGED")


class Shown:
    """A page on a cluster; whatever it complains of is kept."""

    def __init__(self, page, url, cluster) -> None:
        self.page, self.url, self.cluster = page, url, cluster
        self.complaints: list[str] = []
        self.may_be_refused = False  # a browser says each answer that is a no
        self._listeners = {"pageerror": self._erred, "console": self._said, "request": self._asked}
        for event, listener in self._listeners.items():
            page.on(event, listener)

    def leave(self) -> None:
        """Listen no more."""
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)

    def _erred(self, error) -> None:
        self.complaints.append(str(error))

    def _said(self, message) -> None:
        if message.type != "error" or self.may_be_refused:
            return
        if not any(text in message.text for text in NOT_THE_PAGES):
            self.complaints.append(message.text)

    def _asked(self, request) -> None:
        if not request.url.startswith(self.url):
            self.complaints.append(f"asks another host: {request.url}")

    async def open(self, view: str = "") -> None:
        await self.page.goto(f"{self.url}/?measure#/{view}")
        await expect(self.page.locator("#status")).to_have_text("live")

    def text(self, selector: str):
        return self.page.locator(selector)


@pytest_asyncio.fixture(loop_scope="session")
async def page(tab):
    """Yield a page on a small cluster."""
    cluster = Cluster(nodes=5, pods=20, applications=6)
    cluster.tell_all()
    async with served(cluster.machine) as url:
        shown = Shown(tab, url, cluster)
        yield shown
        shown.leave()
    assert not shown.complaints


async def test_every_view_has_an_address_a_heading_and_nothing_to_complain_of(page):
    for view in VIEWS:
        await page.open(view)
        await expect(page.page.locator("h1")).to_have_count(1)
        assert await page.page.locator("main").inner_text(), view
        await expect(page.page.locator("nav a[aria-current]")).to_have_count(1)
        assert not page.complaints, view


async def test_a_view_that_loads_late_is_not_shown_at_another_address(page):
    await page.open()
    held = asyncio.Event()

    async def hold(route):
        await held.wait()
        await route.continue_()

    await page.page.route("**/page/users.js", hold)
    await page.page.evaluate("location.hash = '#/users'")
    await page.page.evaluate("location.hash = '#/'")
    await expect(page.page.locator("nav a[aria-current]")).to_have_text("Overview")
    async with page.page.expect_response("**/page/users.js"):
        held.set()
    await page.page.evaluate("new Promise((done) => setTimeout(done, 50))")
    await expect(page.page.locator("h1")).to_have_text("Overview")


async def test_a_queue_shows_the_properties_that_it_has(page):
    await page.open("queues/root.ml")
    table = page.page.get_by_role("region", name="Property, Value")
    await expect(table).to_contain_text("overquota.weight")
    await expect(table).to_contain_text("3")
    await page.open("queues/root.batch")
    await expect(page.page.get_by_role("heading", level=1)).to_have_text("root.batch")
    await expect(table).to_have_count(0)


async def test_the_tree_of_the_network_shows_what_is_free_in_each_domain(page):
    await page.open("nodes")
    await expect(page.page.locator(".network")).to_be_hidden()
    cluster = page.cluster
    cluster.seq += 1
    levels = {"topologyLevels": "rack=si/rackname,host=kubernetes.io/hostname"}
    domains = [(f"rack-{n % 2}", f"node-{n:04}") if n < 4 else () for n in range(5)]
    nodes = tuple(replace(cluster.node(n), domain=domain) for n, domain in enumerate(domains))
    cluster.tell(StateDelta(configurations=(ConfigurationState("", levels),), nodes=nodes))
    network = page.page.locator(".network")
    await expect(network.locator(".domains > li")).to_have_count(2)
    free = sum(16 - cluster.on_node[n] for n in (0, 2))
    first = network.locator("li", has_text="rack-0")
    await expect(first).to_contain_text(f"2 nodes{free} of 32 free")
    await expect(network).to_contain_text("1 node in no domain: node-0004")
    await page.page.get_by_label("Resource").select_option("vcore")
    await expect(first).to_contain_text("384 cores free")
    await first.get_by_role("link", name=re.compile("^node-0002")).click()
    await expect(page.page.locator("h1")).to_have_text("node-0002")


async def test_what_changes_is_shown_without_being_asked_for(page):
    await page.open("applications")
    row = page.page.locator(ROWS, has_text="train-5")
    await expect(row.locator("div").nth(4)).to_have_text("5")
    page.cluster.placed.append(page.cluster.allocation(900, 2, 5))
    page.cluster.seq += 1
    page.cluster.tell(
        StateDelta(
            applications=(page.cluster.application(5),),
            allocations=(page.cluster.placed[-1],),
            nodes=(page.cluster.node(2),),
        )
    )
    await expect(row.locator("div").nth(4)).to_have_text("6")


async def test_a_gang_fills_member_by_member(page):
    await page.open("applications/train-4")
    gang = page.page.locator(".gang canvas").first
    await expect(gang).to_have_attribute("aria-label", "3 running, 4 wanted")
    for at in range(3):
        page.cluster.placed.append(page.cluster.allocation(900 + at, 2, 4))
        page.cluster.seq += 1
        page.cluster.wants[4] -= 1
        done, summary = replace(page.cluster.ask(4, at), removed=True), page.cluster.application(4)
        page.cluster.tell(
            StateDelta(
                applications=(summary,), asks=(done,), allocations=(page.cluster.placed[-1],)
            )
        )
        await expect(gang).to_have_attribute("aria-label", f"{4 + at} running, {3 - at} wanted")


async def test_a_lost_connection_says_so_and_all_is_right_again_after_it(tab):
    cluster = Cluster(nodes=3, pods=6, applications=2)
    cluster.tell_all()
    port = free_port()
    async with served(cluster.machine, port) as url:
        await tab.goto(f"{url}/#/nodes")
        await expect(tab.locator(ROWS)).to_have_count(3)
    await expect(tab.locator("#banner")).to_contain_text("Connection lost")
    await expect(tab.locator("#status")).to_contain_text("lost")
    anew = Cluster(nodes=7, pods=6, applications=2, epoch=2)
    anew.tell_all()
    async with served(anew.machine, port):
        await expect(tab.locator(ROWS)).to_have_count(7)
        await expect(tab.locator("#banner")).to_be_hidden()


async def test_a_core_that_recovers_is_told_and_its_new_epoch_shown(page):
    await page.open("nodes")
    machine, cluster = page.cluster.machine, page.cluster
    machine.partitions = ApiMachine("two").partitions
    await expect(page.text("#banner")).to_contain_text("core is recovering")
    cluster.epoch, cluster.nodes, cluster.on_node, cluster.of = (
        2,
        4,
        [0] * 4,
        [0] * cluster.applications,
    )
    cluster.tell_all()
    await expect(page.text(ROWS)).to_have_count(4)
    await expect(page.text("#banner")).to_be_hidden()


async def test_a_difference_that_is_not_the_next_opens_the_stream_anew(page):
    await page.open("nodes")
    await page.page.evaluate("muster.live.number -= 1; muster.live.nodes.clear()")
    page.cluster.churn(2)
    await expect(page.text(ROWS)).to_have_count(5)

    async def all_known():
        return await page.page.evaluate("muster.live.nodes.size") == 5

    await until(all_known, "the whole snapshot")


async def test_a_table_sorts_filters_and_keeps_both_in_the_address(page):
    await page.open("applications")
    await page.text(".heads button").filter(has_text="Application").click()
    await page.text(".tools input").fill("train-1")
    await expect(page.text(ROWS)).to_have_count(1)
    await expect(page.page).to_have_url(f"{page.url}/?measure#/applications?sort=id&filter=train-1")
    await page.page.reload()
    await expect(page.text(ROWS)).to_have_count(1)
    await expect(page.text(".tools input")).to_have_value("train-1")
    await page.text(".tools input").fill("nobody")
    await expect(page.text(".empty")).to_have_text("Nothing matches the filter.")


async def test_a_row_is_opened_by_its_link_and_by_a_click_anywhere_on_it(page):
    await page.open("applications")
    row = page.page.locator(ROWS, has_text="train-4")
    await row.get_by_role("link", name="train-4").focus()
    await page.page.keyboard.press("Enter")
    await expect(page.text("h1")).to_contain_text("train-4")
    await page.open("nodes")
    await page.page.locator(ROWS, has_text="node-0002").get_by_role("cell").nth(3).click()
    await expect(page.text("h1")).to_have_text("node-0002")


async def test_the_map_is_walked_by_keyboard_and_a_node_opened(page):
    await page.open()
    canvas = page.text(".heatmap canvas")
    await expect(canvas).to_have_attribute("aria-label", re.compile("^5 nodes by GPU"))
    await canvas.focus()
    await page.page.keyboard.press("ArrowRight")
    await page.page.keyboard.press("ArrowRight")
    await expect(page.text(".tip strong")).to_have_text("node-0001")
    await page.page.keyboard.press("Enter")
    await expect(page.text("h1")).to_have_text("node-0001")


async def test_a_node_that_returns_has_its_place_in_the_map_again(page):
    await page.open()
    canvas = page.text(".heatmap canvas")
    first = page.cluster.node(0)
    for node, count in ((replace(first, removed=True), 4), (first, 5)):
        page.cluster.seq += 1
        page.cluster.tell(StateDelta(nodes=(node,)))
        await expect(canvas).to_have_attribute("aria-label", re.compile(f"^{count} nodes"))
    await canvas.focus()
    await page.page.keyboard.press("ArrowRight")
    await expect(page.text(".tip strong")).to_have_text("node-0000")


async def test_everything_is_reached_with_the_tab_key(page):
    await page.open("applications")
    await expect(page.text(ROWS)).to_have_count(6)
    seen = []
    for _ in range(40):
        await page.page.keyboard.press("Tab")
        seen.append(
            await page.page.evaluate("document.activeElement.textContent.trim().slice(0, 12)")
        )
    for name in ("To the conte", "Overview", "What if", "Copy", "Application"):
        assert name in seen
    assert any(name.startswith("train-") for name in seen)


async def test_names_from_the_cluster_are_text_and_nothing_else(page):
    cluster = page.cluster
    evil = replace(
        cluster.application(0), application_id='<img src=x onerror="boom()">', submission="9"
    )
    cluster.seq += 1
    cluster.tell(
        StateDelta(
            applications=(evil,),
            events=(EventState(2, "<b>x</b>", "<script>boom()</script>", START_NS),),
        )
    )
    await page.open("applications")
    await expect(page.text(ROWS).filter(has_text="<img src=x")).to_have_count(1)
    assert await page.page.locator("main img").count() == 0
    await page.open("events")
    await expect(page.text(ROWS).first).to_contain_text("<script>boom()</script>")


async def test_nothing_is_wider_than_the_screen(page):
    for width, view in product((360, 720), VIEWS):
        await page.page.set_viewport_size({"width": width, "height": 740})
        await page.open(view)
        await expect(page.page.locator("h1")).to_have_count(1)
        assert await page.page.evaluate(WIDEST) <= width, view


WIDEST = """() => Math.max(document.documentElement.scrollWidth, ...[...document.querySelectorAll(
  "main *:not(.scrolls *)")].map((one) => one.getBoundingClientRect()).filter((box) => box.width > 2).map((box) => Math.floor(box.right)))"""


async def test_the_theme_is_changed_and_kept(page):
    await page.open()
    before = await page.page.evaluate("getComputedStyle(document.body).backgroundColor")
    await page.text("#theme").click()
    assert await page.page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    await page.page.reload()
    await expect(page.text("html")).to_have_attribute("data-theme", "dark")


async def test_text_stands_out_from_its_ground_as_wcag_aa_asks(page):
    await page.open()
    for theme in ("light", "dark"):
        await page.page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        ratios = await page.page.evaluate(CONTRAST)
        for (ink, ground), ratio in zip(PAIRS, ratios, strict=True):
            assert ratio >= 4.5, (theme, ink, ground, ratio)


PAIRS = [
    (ink, ground)
    for ink in ("ink", "ink-2", "accent", "warn", "wait")
    for ground in ("ground", "raised")
]
CONTRAST = (
    """() => {
  const light = (name) => {
    const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  return PAIRS.map(([a, b]) => {
    const [x, y] = [light("--" + a), light("--" + b)].sort((one, other) => other - one);
    return (x + 0.05) / (y + 0.05);
  });
}"""
).replace("PAIRS", str([list(pair) for pair in PAIRS]))


async def test_evictions_are_arrows_from_victim_to_winner_with_their_law(page):
    await page.open("evictions")
    await expect(page.text("main")).to_contain_text("No pod has been evicted.")
    page.cluster.evict(0, 4, "priority", "preempted for application train-4", pods=2)
    page.cluster.evict(1, 4, "guarantee", "below its guarantee")
    arrows = page.text(".arrows")
    said = "train-0 made way for train-4 (priority, 2 pods); train-1 made way for train-4 (guarantee, 1 pod)"
    await expect(arrows).to_have_attribute("aria-label", said)
    await expect(page.text("path.arrow")).to_have_count(2)
    await expect(page.text("table tbody tr")).to_have_count(3)
    await page.open("applications/train-0")
    await expect(page.text(".gang canvas").first).to_have_attribute(
        "aria-label", re.compile("2 evicted$")
    )
    await expect(page.text(".arrows")).to_have_count(1)


async def test_why_it_waits_is_one_sentence_with_the_evidence_below(page):
    await page.open("applications/train-4")
    sentence = page.text(".sentence")
    await expect(sentence).to_have_attribute("data-verdict", "waiting")
    await expect(sentence).to_contain_text("train-4 waits")
    await expect(page.text(".evidence h2").first).to_be_visible()


async def test_a_forecast_is_shown_with_its_nodes_marked(page):
    asked = []

    async def forecast(route):
        asked.append(route.request.post_data_json)
        await route.fulfill(json=FORECAST)

    await page.page.route("**/v1/what-if*", forecast)
    await page.open("what-if?drain=node-0001")
    await page.page.get_by_role("button", name="Forecast").click()
    await expect(page.text(".sentence")).to_have_text(FORECAST["sentence"])
    assert asked == [{"drain": "node-0001"}]
    await expect(page.text("tbody tr").first).to_have_text(
        re.compile(r"^train-0root.ml.train2 of 31node-0002 . 2$")
    )
    await expect(page.text("h2")).to_have_text(
        [
            "Would start", "Would wait", "Would be evicted", "Queues", "Cannot be scheduled",
            "Where · 2 nodes marked",
        ]
    )  # fmt: skip
    await expect(page.text("table").nth(1)).to_contain_text(
        "12 of 14 running pods state no run time"
    )
    await expect(page.text("table").nth(3).locator("tbody tr")).to_have_text(
        "root.etlchanged12resources.max, limits of users"
    )


FORECAST = {
    "done": True,
    "sentence": "2 pods of train-0 would start elsewhere, and nobody would wait.",
    "starts": [
        {
            "applicationID": "train-0", "queueName": "root.ml.train", "wanted": 3, "placed": 2, "afterEvictions": 1, "isGang": True,
            "isNew": False, "reason": "", "message": "", "places": [{"pod": "a", "nodeID": "node-0002"}] * 2,
        }
    ],
    "waits": [
        {
            "applicationID": "rag", "queueName": "root.ml", "wanted": 2, "placed": 0, "afterEvictions": 0, "isGang": False, "isNew": True,
            "reason": "QUEUE_QUOTA", "message": "", "places": [], "expectedStart": 0,
            "noStart": "no expected start: 12 of 14 running pods state no run time",
        }
    ],
    "queues": [{"queueName": "root.etl", "change": "changed", "applications": 12, "changed": ["resources.max", "limits of users"]}],
    "evicted": [{"victim": "a", "victimName": "train-1-worker-5", "applicationID": "train-1", "nodeID": "node-0001", "winner": "train-0", "law": "priority"}],
    "rejected": [],
    "refused": [{"document": 2, "field": "kind", "message": "no such kind"}],
}  # fmt: skip


HAS_NOT = (
    ("what-if", "what-if?drain=node-0001", "it has no /v1/what-if"),
    ("evictions", "evictions", "it has no /v1/evictions"),
    ("why/*", "applications/train-4", "has no /v1/why"),
)


async def test_what_an_api_has_not_the_page_says_in_a_sentence(page):
    for path, view, says in HAS_NOT:
        await page.page.route(f"**/v1/{path}*", lambda route: route.fulfill(status=404))
        await page.open(view)
        if path == "what-if":
            await page.page.get_by_role("button", name="Forecast").click()
        await expect(page.text("main")).to_contain_text(says)


async def tell_partitions(page, *names):
    told = Envelope("p", "Partitions", Partitions(names), API_ALL, "shim_adapter")
    page.cluster.machine.handle(told, START_NS)


async def test_another_partition_is_chosen_and_everything_is_of_it(page):
    await page.open("nodes")
    chooser = page.page.get_by_label("Partition")
    await expect(chooser).to_be_hidden()
    await tell_partitions(page, "default", "gpu")
    gpu = Cluster(nodes=2, pods=4, applications=3, machine=page.cluster.machine, name="gpu")
    gpu.tell_all()
    await expect(chooser).to_be_visible()
    await expect(chooser).to_have_value("default")
    await expect(page.text(ROWS)).to_have_count(5)
    await chooser.select_option("gpu")
    await expect(page.text(ROWS)).to_have_count(2)
    await expect(page.page).to_have_url(re.compile("partition=gpu#/nodes"))
    await expect(chooser).to_have_value("gpu")
    await page.page.get_by_role("link", name="Applications").click()
    await expect(page.text(ROWS)).to_have_count(3)
    async with page.page.expect_request("**/v1/why/*") as asked:
        await page.text(ROWS).first.get_by_role("link").first.click()
    assert (await asked.value).url.endswith("?partition=gpu")
    await chooser.select_option("default")
    await expect(page.text(ROWS)).to_have_count(6)
    await expect(page.page).not_to_have_url(re.compile("partition="))


async def test_a_partition_that_is_not_there_or_not_any_more_is_said(page):
    page.may_be_refused = True
    await page.page.goto(f"{page.url}/?partition=gpu#/nodes")
    await expect(page.text("main")).to_contain_text("There is no partition gpu here")
    await tell_partitions(page, "default", "gpu")
    gpu = Cluster(nodes=2, pods=4, applications=3, machine=page.cluster.machine, name="gpu")
    gpu.tell_all()
    await expect(page.text(ROWS)).to_have_count(2)
    await tell_partitions(page, "default")
    await expect(page.text("#banner")).to_contain_text("no partition gpu here any more")


async def test_of_five_thousand_nodes_only_what_is_in_sight_is_elements(tab):
    cluster = Cluster(nodes=5_000, pods=5_000, applications=50)
    cluster.tell_all()
    async with served(cluster.machine) as url:
        await tab.goto(f"{url}/?measure#/nodes")
        await expect(tab.locator(".count")).to_have_text("5,000")
        assert await tab.evaluate("document.querySelectorAll('*').length") < 1_500
        frames = await tab.evaluate("muster.live.frames")
        began = asyncio.get_running_loop().time()
        for _ in range(40):
            cluster.churn(200)
            await asyncio.sleep(0)
        nodes = cluster.machine.partitions.default.model.nodes.values()
        pods_per_node = [len(node.allocations) for node in nodes]
        shown = "[...muster.live.nodes.values()].map((node) => node.pods)"

        async def all_shown():
            return await tab.evaluate(shown) == pods_per_node

        await until(all_shown, "what the last change says", pause=0.1)
        frames = await tab.evaluate("muster.live.frames") - frames
        seconds = asyncio.get_running_loop().time() - began
        assert 1 <= frames <= 3 + seconds / FRAME_SECONDS


async def test_the_scarcest_resource_is_shown_first_and_the_others_beside_it(page):
    await page.open()
    first = page.text(".fact").first
    await expect(first.locator(".rest")).to_have_text(" of GPU")
    await expect(first.locator(".meter")).to_have_count(2)
    partition = page.cluster.partition()
    full = replace(
        partition, allocated={**partition.allocated, "vcore": partition.capacity["vcore"]}
    )
    page.cluster.seq += 1
    page.cluster.tell(StateDelta(partitions=(full,)))
    await expect(first.locator(".number")).to_have_text("100\u202f%")
    await expect(first.locator(".rest")).to_have_text(" of CPU")


async def test_a_queue_says_what_holds_it_back_also_of_a_gang(page):
    """A gang's reason is its application's; the queue has none of its own."""
    page.cluster.seq += 1
    gang = page.cluster.application(4)
    waits = Waiting("real", "GANG_PLACES", "the whole gang has no place", page.cluster.now_ns)
    queues = tuple(replace(queue, waiting=()) for queue in page.cluster.queues())
    page.cluster.tell(StateDelta(queues=queues, applications=(replace(gang, waiting=(waits,)),)))
    await page.open("queues")
    row = page.text(ROWS).filter(has_text="vision")
    await expect(row).to_contain_text("nodes have no room for every member")
    await page.open(f"queues/{gang.queue_name}")
    await expect(page.text("h2").first).to_have_text("What holds it back")


async def test_several_changes_are_forecast_together(page):
    asked = []

    async def forecast(route):
        asked.append(route.request.post_data_json)
        await route.fulfill(json=FORECAST)

    await page.page.route("**/v1/what-if*", forecast)
    await page.open("what-if")
    await page.page.get_by_role("button", name="Forecast").click()
    await expect(page.text(".warn")).to_contain_text("What would be changed?")
    await page.page.get_by_label("Submit this manifest").fill("kind: Job")
    await page.page.get_by_label("Add").fill("30")
    await page.page.get_by_label("Delete").fill("train-1, train-2")
    await page.page.get_by_role("button", name="Forecast").click()
    await expect(page.text(".sentence")).to_have_text(FORECAST["sentence"])
    assert asked == [{"manifest": "kind: Job", "addNodes": 30, "delete": ["train-1", "train-2"]}]


async def test_users_are_shown_by_what_they_use_and_one_with_their_applications(page):
    await page.open("users")
    row = page.text("tbody tr").first
    user = await row.locator("a").inner_text()
    mine = [page.cluster.application(n) for n in range(6)]
    own = [item for item in mine if item.user == user]
    await expect(row.locator("td").nth(1)).to_have_text(str(len(own)))
    await row.locator("a").click()
    await expect(page.page.get_by_role("heading", level=1)).to_have_text(user)
    await expect(page.text(ROWS)).to_have_count(len(own))

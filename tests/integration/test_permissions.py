"""Each service has a user of its own on the broker, who may say what the service says, and no more."""

import json
import re
import shlex
from dataclasses import replace

import aio_pika
import httpx
import pytest
from aio_pika.exceptions import AMQPError
from aiormq.exceptions import ChannelAccessRefused

from shared.bus import topology
from shared.bus.base import Wanted
from shared.bus.errors import BusUnavailableError, PoisonError
from shared.bus.permissions import definitions, permissions, rabbitmqctl_lines, user_of
from shared.bus.rabbitmq import RabbitBus
from shared.messages.dead_letters import DeadLettersReplayed, ReplayDeadLetters
from shared.messages.envelope import (
    CORE,
    PARTITIONED,
    Address,
    Envelope,
    core_of,
    members_of,
    timers_of,
)
from shared.messages.protocol import Partitions, SyncBegin, TimerOrders
from shared.messages.registry import KINDS
from shared.messages.routes import SENDERS, SERVICES, may_send
from tests.broker import own_broker
from tests.integration.processes import HTTP, Deployment
from tests.patience import PATIENCE_SECONDS
from tests.unit.api.test_routes import GANG

pytestmark = pytest.mark.long
PREFIX = "team-1"
PASSWORDS = {service: f"password-of-{service}" for service in SERVICES}
INBOXES = [*(name for name in SENDERS if "<" not in name), "api.one"]
INBOXES += [f"{service}.{name}" for service in PARTITIONED for name in ("default", "gpu", "@0a1")]


@pytest.fixture(scope="module")
def secured():
    """Yield a broker that knows the services' users and nobody else."""
    with own_broker(json.dumps(definitions(PREFIX, PASSWORDS))) as broker:
        yield broker


def url_of(secured, service, password=None):
    where = secured.url.rpartition("@")[2]
    password = PASSWORDS[service] if password is None else password
    return f"amqp://{user_of(PREFIX, service)}:{password}@{where}"


@pytest.fixture
async def connected(secured):
    """Return what makes a channel in the name of a service."""
    connections = {}

    async def channel(service):
        if service not in connections:
            connections[service] = await aio_pika.connect(url_of(secured, service))
        return await connections[service].channel()

    yield channel
    for connection in connections.values():
        await connection.close()


async def published(channel, exchange, key):
    """Return whether the broker takes a message; a refusal ends the channel."""
    try:
        made = await channel.get_exchange(exchange, ensure=False)
        await made.publish(aio_pika.Message(b"", type="x", message_id="x"), key, mandatory=False)
    except ChannelAccessRefused:
        return False
    return True


@pytest.mark.parametrize("service", SERVICES)
async def test_the_broker_takes_from_a_service_what_the_routes_have_it_say_and_nothing_else(
    connected, service
):
    channel = await connected(service)
    for inbox in INBOXES:
        for kind in KINDS:
            taken = await published(channel, PREFIX, f"{inbox}.{kind}")
            assert taken is may_send(service, inbox, kind), (inbox, kind)
            if not taken:
                channel = await connected(service)


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize(
    ("exchange", "key"),
    [
        (PREFIX, "core.default"),
        (PREFIX, "core.default.SyncBegin.SyncEnd"),
        (PREFIX, "x.core.default.SyncBegin"),
        (PREFIX, "api.all.trace.StateDelta"),
        (PREFIX, ""),
        ("", f"{PREFIX}.core.default"),  # past the exchange, straight into an inbox
        ("amq.direct", "x"),
        ("amq.topic", "core.default.SyncBegin"),
    ],
)
async def test_there_is_no_way_around(connected, service, exchange, key):
    assert not await published(await connected(service), exchange, key)


async def ignore(message): ...


async def refused(doing):
    with pytest.raises(ChannelAccessRefused):
        await doing


@pytest.mark.parametrize("service", SERVICES)
async def test_a_service_reads_its_own_inbox_and_makes_and_deletes_nothing(connected, service):
    for inbox in topology.DURABLE_INBOXES:
        name = topology.inbox_name(PREFIX, inbox)
        queue = await (await connected(service)).get_queue(name, ensure=False)
        if inbox.service == service:
            await queue.cancel(await queue.consume(ignore))
            await queue.bind(PREFIX, topology.binding_key(inbox))
        else:
            await refused(queue.consume(ignore))
            queue = await (await connected(service)).get_queue(name, ensure=False)
            await refused(queue.purge())
        await refused((await connected(service)).queue_delete(name))
        for key in ("#", "timers.default.#" if service != "timers" else "core.default.#"):
            queue = await (await connected(service)).get_queue(name, ensure=False)
            await refused(queue.bind(PREFIX, key))
    await refused((await connected(service)).exchange_delete(PREFIX))
    await refused((await connected(service)).declare_queue(f"{PREFIX}.spare", durable=True))
    await refused((await connected(service)).declare_exchange("spare"))
    trace = f"{PREFIX}.api.trace"
    await refused((await connected(service)).queue_delete(trace))


async def test_a_replica_hears_what_is_for_replicas_and_nothing_else(connected):
    channel = await connected("api")
    queue = await channel.declare_queue(f"{PREFIX}.api.one", exclusive=True)
    await queue.bind(PREFIX, "api.all.#")
    await refused(queue.bind(PREFIX, "core.default.#"))
    queue = await (await connected("api")).get_queue(f"{PREFIX}.api.one", ensure=False)
    await refused(queue.bind(PREFIX, "#"))


@pytest.mark.parametrize("user", ["guest", user_of(PREFIX, "core")])
async def test_nobody_comes_in_by_a_password_that_somebody_could_guess(secured, user):
    where = secured.url.rpartition("@")[2]
    for password in ("guest", "", "muster", user):
        with pytest.raises((AMQPError, OSError)):
            await aio_pika.connect(f"amqp://{user}:{password}@{where}")


async def test_a_forged_sync_begin_is_refused_whatever_it_calls_itself(secured):
    """It is not published under its name; under another name, whoever reads it puts it aside."""
    api = RabbitBus(url_of(secured, "api"), prefix=PREFIX, is_given=True)
    core = RabbitBus(url_of(secured, "core"), prefix=PREFIX, is_given=True)
    subscription = await core.subscribe(CORE)  # which binds its inbox
    forged = Envelope("forged", "SyncBegin", SyncBegin(""), CORE, "shim_adapter", epoch=2**61)
    with pytest.raises(BusUnavailableError, match="ACCESS_REFUSED"):
        await api.publish([forged])
    await api.connect()
    message = aio_pika.Message(b"\x80", type="SyncBegin", message_id="forged")
    channel = api._publisher._current.channel
    exchange = await channel.get_exchange(topology.exchange_name(PREFIX), ensure=False)
    await exchange.publish(message, "core.default.SnapshotRequest")
    honest = Envelope("honest", "WhatIf", KINDS["WhatIf"](), CORE, "api")
    await api.publish([honest])
    heard = []
    while "honest" not in heard:
        deliveries = await subscription.receive(100)
        heard += [item.envelope.message_id for item in deliveries]
        await subscription.ack(deliveries)
    assert "forged" not in heard
    letters = (await api.dead_letters(10_000)).letters
    assert [item.reason for item in letters if item.message_id == "forged"] == [
        "it was published as core.default.SnapshotRequest and says that it is SyncBegin"
    ]
    for bus in (api, core):
        await bus.close()


async def test_a_service_replays_its_own_letters_and_the_api_only_asks_for_it(secured):
    """Nobody puts words into another's mouth: what is replayed was put aside by its own service."""
    buses = {
        name: RabbitBus(url_of(secured, name), prefix=PREFIX, is_given=True)
        for name in ("api", "core", "timers", "shim_adapter")
    }
    core = await buses["core"].subscribe(CORE)
    asked = ReplayDeadLetters("core.default", ("letter",))
    request = Envelope("asked", "ReplayDeadLetters", asked, CORE, "api", reply_to="api.one#1")
    await buses["api"].publish([request])
    honest = Envelope("letter", "WhatIf", KINDS["WhatIf"](), CORE, "api")
    await buses["api"].publish([honest])
    heard = {}
    while "letter" not in heard:
        deliveries = await core.receive(100)
        heard |= {item.envelope.message_id: item for item in deliveries}
        await core.dead_letter(heard["letter"], "because") if "letter" in heard else None
        await core.ack(deliveries)
    assert "asked" in heard
    for service in ("timers", "shim_adapter", "api"):  # each may leave one, and not in core's name
        await buses[service].connect()
        user = user_of(PREFIX, service)
        letter = aio_pika.Message(b"\x80", type="SyncBegin", message_id="left", user_id=user)
        await buses[service]._publisher.leave(letter, "core")
    for service in ("timers", "shim_adapter"):  # nor ask for what people ask for
        with pytest.raises(BusUnavailableError, match="ACCESS_REFUSED"):
            await buses[service].publish([replace(request, source=service)])
    wanted = Wanted(frozenset(["letter", "left"]))
    async with buses["core"].take_letters("core", wanted, is_read=True) as held:
        own, *others = held
        assert own.read().message == honest.message
        for item in others:
            with pytest.raises(PoisonError, match=f"and not by {user_of(PREFIX, 'core')}"):
                item.read()
        for item in held:
            await item.drop()
        assert len(held) == 4
    with pytest.raises(BusUnavailableError, match="ACCESS_REFUSED"):
        async with buses["timers"].take_letters("core", wanted):
            pass
    done = DeadLettersReplayed(("letter",))
    answer = Envelope("done", "DeadLettersReplayed", done, Address("api", "one"), "core")
    for service in ("core", "timers", "shim_adapter"):
        await buses[service].publish([replace(answer, source=service)])
    for bus in buses.values():
        await bus.close()


async def test_who_knows_which_partitions_there_are_makes_their_inboxes_and_nobody_else(
    secured, connected
):
    buses = {
        service: RabbitBus(url_of(secured, service), prefix=PREFIX, is_given=True)
        for service in ("shim_adapter", "core", "timers")
    }
    told = Partitions(("default", "gpu", "an odd name"))
    members = await buses["core"].subscribe(members_of("core", "one"))
    await buses["shim_adapter"].publish(
        [Envelope("p", "Partitions", told, members_of("core", "all"), "shim_adapter")]
    )
    assert [item.envelope.message for item in await members.receive(10)] == [told]
    for name in told.names[1:]:
        core = await buses["core"].subscribe(core_of(name))
        wheel = await buses["timers"].subscribe(timers_of(name))
        begin = Envelope(
            "b", "SyncBegin", SyncBegin("x"), core_of(name), "shim_adapter", partition=name
        )
        await buses["shim_adapter"].publish([begin])
        (heard,) = await core.receive(10)
        assert (heard.envelope.message, heard.envelope.partition) == (SyncBegin("x"), name)
        orders = Envelope("o", "TimerOrders", TimerOrders(), timers_of(name), "core")
        await buses["core"].publish([orders])
        assert len(await wheel.receive(10)) == 1
        queue = topology.inbox_name(PREFIX, core_of(name))
        for service in ("core", "timers", "api"):
            await refused((await connected(service)).queue_delete(queue))
        await refused((await connected("core")).declare_queue(f"{PREFIX}.core.spare", durable=True))
        await refused((await connected("shim_adapter")).queue_delete(f"{PREFIX}.core.default"))
        inbox = await (await connected("shim_adapter")).get_queue(queue, ensure=False)
        await refused(inbox.consume(ignore))
    for bus in buses.values():
        await bus.close()


def test_the_services_run_as_their_users_and_need_nothing_else(secured, tmp_path):
    """Every kind of message that people and services send goes through, and none is put aside."""
    (tmp_path / "password").write_text(PASSWORDS["api"] + "\n")
    deployment = Deployment("", tmp_path, PREFIX, MUSTER_BUS_TOPOLOGY="given")
    try:
        for service in SERVICES:
            more = {"MUSTER_BUS_URL": url_of(secured, service)}
            if service == "api":
                url = more["MUSTER_BUS_URL"].replace(f":{PASSWORDS['api']}", "")
                password = str(tmp_path / "password")
                more = {"MUSTER_BUS_URL": url, "MUSTER_BUS_PASSWORD_FILE": password}
            deployment.start(service, **more)
        deployment.wait(lambda: HTTP.get(f"{deployment.url}/health/ready").status_code == 200, "up")
        yaml = {"Content-Type": "application/yaml"}
        ask = httpx.Client(base_url=deployment.url, timeout=PATIENCE_SECONDS, headers=yaml)
        config = "partitions: [{name: default, queues: [{name: root, submitacl: '*', "
        config += "queues: [{name: a}]}]}]"
        assert ask.post("/v1/config", content=config).json() == {"accepted": True}
        assert ask.post("/v1/manifests", content=GANG).status_code == 200
        deployment.wait(lambda: deployment.has_started("gang"), "runs")
        what_if = {"manifest": GANG.replace("gang", "other")}
        assert ask.post("/v1/what-if", json=what_if).status_code == 200
        assert ask.post("/v1/what-if", json={"drain": "node-1"}).status_code in (200, 404)
        node = deployment.get("/ws/v1/partition/default/nodes")[0]["nodeID"]
        assert ask.post(f"/v1/nodes/{node}/drain").status_code == 200
        assert ask.post(f"/v1/nodes/{node}/undrain").status_code == 200
        assert ask.post("/v1/manifests/delete", content=GANG).status_code == 200
        assert ask.post("/v1/manifests", content=GANG.replace("gang", "next")).status_code == 200
        assert ask.delete("/v1/applications/next").status_code == 200
        for service in SERVICES:  # each recovers, under its user too
            deployment.kill(service) if service != "api" else None
            if service != "api":
                deployment.start(service, MUSTER_BUS_URL=url_of(secured, service))
        deployment.submit(GANG.replace("gang", "last"))
        deployment.wait(lambda: deployment.has_started("last"), "runs again")
        assert [item for item in ask.get("/v1/dead-letters").json()["deadLetters"]
                if item["messageID"] not in ("x", "forged")] == []  # fmt: skip
        said = "".join(path.read_text() for path in tmp_path.glob("*.log"))
        assert "ACCESS_REFUSED" not in said
        assert not any(password in said for password in PASSWORDS.values())
    finally:
        deployment.stop()


async def test_a_broker_that_starts_again_reads_its_definitions_again_and_loses_nothing(secured):
    first = RabbitBus(url_of(secured, "core"), prefix=PREFIX, is_given=True)
    await (await first.subscribe(CORE)).close()  # its inbox is bound, and stays so
    await first.close()
    bus = RabbitBus(url_of(secured, "api"), prefix=PREFIX, is_given=True)
    for number in range(2):
        await bus.publish([Envelope(f"{number}", "WhatIf", KINDS["WhatIf"](), CORE, "api")])
        await bus.close()
        secured.stop()
        secured.start()
        bus = RabbitBus(url_of(secured, "api"), prefix=PREFIX, is_given=True)
    await bus.close()
    core = RabbitBus(url_of(secured, "core"), prefix=PREFIX, is_given=True)
    subscription = await core.subscribe(CORE)
    heard = []
    while "1" not in heard:
        deliveries = await subscription.receive(100)
        heard += [item.envelope.message_id for item in deliveries]
        await subscription.ack(deliveries)
    assert [item for item in heard if item in "01"] == ["0", "1"]
    await core.close()


def test_the_same_is_said_in_commands_for_a_broker_that_is_there():
    lines = [shlex.split(line) for line in rabbitmqctl_lines("a-b", "/team")]
    assert len(lines) == 2 * len(SERVICES)
    item = permissions("a-b", "timers")
    told = [words for words in lines if words[4] == "a-b-timers"]
    assert told == [
        ["rabbitmqctl", "set_permissions", "-p", "/team", "a-b-timers", item.configure, item.write,
         item.read],
        ["rabbitmqctl", "set_topic_permissions", "-p", "/team", "a-b-timers", "a-b", item.publish,
         item.bind],
    ]  # fmt: skip
    assert re.search(item.publish, "core.default.TimerFirings")
    assert not re.search(item.publish, "core.default.TimerFiringsX")
    named = permissions("a-b", "shim_adapter").read
    assert re.search(named, "a-b.shim_adapter.default")
    assert not re.search(named, "a-b.core.default")
    assert not re.search(named, "a-bXshim_adapter.default")

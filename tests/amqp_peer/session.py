"""One connection to the peer, with its channels: frames in, frames out."""

from copy import copy

from pamqp import commands, frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader, ProtocolHeader
from pamqp.heartbeat import Heartbeat

from tests.amqp_peer.broker import Consumer, Message, RefusedError

FRAME_MAX = 131072
HANDSHAKE_SECONDS = 10
CAPABILITIES = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
}


class Session:
    """A connection."""

    def __init__(self, broker, node, link, faults):
        self.broker = broker
        self.node = node
        self.link = link
        self.faults = faults
        self.loop = broker.loop
        self.channels = {}
        self.heartbeat = 0
        self.name = ""
        self.is_open = True
        self.is_closing = False
        self.frames = 0  # of the client, without heartbeats
        self._has_heard = True
        self._missed = 0
        broker.sessions.append(self)
        self.loop.call_later(HANDSHAKE_SECONDS, self._give_up)

    def feed(self, data):
        """Handle one frame, if there is one; return how many bytes it was."""
        size = frame.frame_parts(bytes(data[:7]))[2]
        if len(data) < 8 or (data[:4] != b"AMQP" and len(data) < size + 8):
            return 0
        taken, channel, found = frame.unmarshal(bytes(data))
        self._has_heard = True
        if isinstance(found, Heartbeat):
            return taken
        self.frames += 1
        if self.is_closing:
            if isinstance(found, commands.Connection.CloseOk):
                self.end()
        elif self.faults.allow(self, channel, found):
            self._handle(channel, found)
            self.faults.handled(self, channel, found)
        elif self.link.held() > self.loop.time():
            return 0  # it is read once the link is no longer held
        return taken

    def _handle(self, number, found):
        if isinstance(found, ProtocolHeader):
            self._start()
        elif number == 0:
            getattr(self, f"on_{_word(found)}")(found)
        elif isinstance(found, commands.Channel.Open):
            self.channels[number] = Channel(self, number)
            self.send(number, commands.Channel.OpenOk())
        elif number in self.channels:
            self.channels[number].feed(found)

    def send(self, channel, *frames):
        """Send frames."""
        if self.is_open:
            self.link.from_server(b"".join(frame.marshal(item, channel) for item in frames))

    def _start(self):
        properties = {"capabilities": CAPABILITIES, "product": "RabbitMQ", "version": "3.10.8"}
        self.send(0, commands.Connection.Start(0, 9, properties, "PLAIN AMQPLAIN", "en_US"))

    def on_start_ok(self, found):
        self.name = str((found.client_properties or {}).get("connection_name", ""))
        self.send(0, commands.Connection.Tune(2047, FRAME_MAX, 60))

    def on_tune_ok(self, found):
        self.heartbeat = found.heartbeat
        if self.heartbeat:
            self.loop.call_later(self.heartbeat / 2, self._beat)
            self.loop.call_later(self.heartbeat, self._watch)

    def _give_up(self):
        """End a connection that has not said how it is to be, as brokers do."""
        if not self.heartbeat:
            self.end()

    def on_open(self, _):
        self.send(0, commands.Connection.OpenOk())

    def on_close(self, _):
        self.send(0, commands.Connection.CloseOk())
        self.end()

    def on_close_ok(self, _):
        self.end()

    def _beat(self):
        if self.is_open:
            self.send(0, Heartbeat())
            self.loop.call_later(self.heartbeat / 2, self._beat)

    def _watch(self):
        """End a connection of which nothing has come for two to three intervals."""
        if not self.is_open:
            return
        now = self.loop.time()
        is_stopped = self.node.held_until > now or self.link.unread_until > now
        self._missed = 0 if self._has_heard or is_stopped else self._missed + 1
        self._has_heard = False
        if self._missed >= 2:
            self.lost()
            self.link.end_of_server()
            return
        self.loop.call_later(self.heartbeat, self._watch)

    def close(self, code, text="as the script says"):
        """Close the connection, and wait for the client's word."""
        self.send(0, commands.Connection.Close(code, text, 0, 0))
        self.is_closing = True
        self._drop_channels()
        self.loop.call_later(5, self.end)

    def block(self, until):
        """Read nothing more until an alarm is over."""
        self.send(0, commands.Connection.Blocked("low on memory"))
        self.link.unread_until = until
        self.loop.call_at(until, self.send, 0, commands.Connection.Unblocked())
        self.link.wake()

    def end(self):
        """Close the socket."""
        if self.is_open:
            self.lost()
            self.link.end_of_server()

    def lost(self):
        """Forget it: what was not acknowledged is given back."""
        if self.is_open:
            self.is_open = False
            self.broker.sessions.remove(self)
            self._drop_channels()
            for queue in [item for item in self.broker.queues.values() if item.owner is self]:
                self.broker.remove(queue)

    def _drop_channels(self):
        channels, self.channels = self.channels, {}
        for channel in channels.values():
            channel.drop()


class Channel:
    """A channel of a connection."""

    def __init__(self, session, number):
        self.session = session
        self.number = number
        self.broker = session.broker
        self.loop = session.loop
        self.consumers = {}
        self.unacked = {}  # tag -> (queue, message, consumer); in the order of delivery
        self.busy_until = 0.0
        self._waiting = []
        self._tag = 0
        self._prefetch = 0
        self._confirms = False
        self._published = 0
        self._content = None  # publish, header, bodies
        self._confirmed_at = 0.0
        self._is_dropped = False

    def send(self, *frames):
        """Send frames on this channel."""
        if not self._is_dropped:
            self.session.send(self.number, *frames)

    def slow(self, seconds):
        """Handle nothing for a while; other channels go on."""
        self.busy_until = self.loop.time() + seconds
        self.loop.call_at(self.busy_until, self._go_on)

    def feed(self, found):
        """Handle a frame when its turn comes."""
        self._waiting.append(found)
        self._go_on()

    def _go_on(self):
        while self._waiting and not self._is_dropped and self.busy_until <= self.loop.time():
            found = self._waiting.pop(0)
            try:
                self._handle(found)
            except RefusedError as refused:
                self.close(refused.code, refused.text)

    def _handle(self, found):
        if isinstance(found, ContentHeader | ContentBody):
            self._on_content(found)
        else:
            getattr(self, f"on_{_path(found)}")(found)

    def close(self, code, text="as the script says"):
        """Close the channel."""
        self.send(commands.Channel.Close(code, text, 0, 0))
        self.session.channels.pop(self.number, None)
        self.drop()

    def drop(self):
        """Let its readers go, and give back what they had not acknowledged."""
        if self._is_dropped:
            return
        self._is_dropped = True
        queues = {}
        for queue, message, _ in self.unacked.values():
            queues.setdefault(id(queue), (queue, []))[1].append(message)
        self.unacked.clear()
        for queue, messages in queues.values():
            queue.give_back(messages)
        left = list(self.consumers.values())
        self.consumers.clear()
        for reader in left:
            reader.queue.leave(reader)
        for queue in [*(reader.queue for reader in left), *(item[0] for item in queues.values())]:
            queue.deliver()

    def cancel(self, reader):
        """Tell the client that a reader is none any more; what it has not acknowledged comes again."""
        self.consumers.pop(reader.tag, None)
        kept, back = {}, []
        for tag, item in self.unacked.items():
            if item[2] is reader:
                back.append(item[1])
            else:
                kept[tag] = item
        self.unacked = kept
        reader.queue.give_back(back)
        reader.queue.leave(reader)
        self.send(commands.Basic.Cancel(reader.tag, True))
        reader.queue.deliver()

    # --- what a client says ---------------------------------------------------------------------

    def on_channel_close(self, _):
        self.send(commands.Channel.CloseOk())
        self.session.channels.pop(self.number, None)
        self.drop()

    def on_channel_close_ok(self, _):
        pass

    def on_confirm_select(self, _):
        self._confirms = True
        self.send(commands.Confirm.SelectOk())

    def on_exchange_declare(self, found):
        self.broker.declare_exchange(found.exchange, found.exchange_type)
        self.send(commands.Exchange.DeclareOk())

    def on_exchange_delete(self, found):
        self.broker.exchanges.pop(found.exchange, None)
        self.send(commands.Exchange.DeleteOk())

    def on_queue_declare(self, found):
        queue = self.broker.declare(found, self.session)
        self.send(commands.Queue.DeclareOk(queue.name, len(queue.ready), len(queue.consumers)))

    def on_queue_bind(self, found):
        self.broker.usable(found.queue, self.session)
        self.broker.bind(found.queue, found.exchange, found.routing_key)
        self.send(commands.Queue.BindOk())

    def on_queue_delete(self, found):
        queue = self.broker.queues.get(found.queue)
        self.broker.deleted.append(found.queue)
        if queue is not None:
            self.broker.remove(queue)
        self.send(commands.Queue.DeleteOk(0))

    def on_basic_qos(self, found):
        self._prefetch = found.prefetch_count
        self.send(commands.Basic.QosOk())

    def on_basic_consume(self, found):
        queue = self.broker.usable(found.queue, self.session)
        reader = Consumer(found.consumer_tag, self, queue, self._prefetch)
        self.consumers[reader.tag] = reader
        queue.consumers.append(reader)
        self.send(commands.Basic.ConsumeOk(reader.tag))
        queue.deliver()

    def on_basic_get(self, found):
        queue = self.broker.usable(found.queue, self.session)
        message = queue.head()
        if message is None:
            self.send(commands.Basic.GetEmpty())
            return
        queue.ready.popleft()
        tag = self._held(queue, message, None)
        again = message.deliveries > 0
        ok = commands.Basic.GetOk(tag, again, message.exchange, message.key, len(queue.ready))
        self.send(ok, *_content(message))

    def on_basic_ack(self, found):
        tags = [tag for tag in self.unacked if tag == found.delivery_tag]
        if found.multiple:
            tags = [tag for tag in self.unacked if tag <= found.delivery_tag]
        if found.delivery_tag > self._tag:
            text = f"PRECONDITION_FAILED - unknown delivery tag {found.delivery_tag}"
            raise RefusedError(406, text)
        queues = {}
        for tag in tags:
            queue, _, reader = self.unacked.pop(tag)
            if reader is not None:
                reader.unacked -= 1
            queues[id(queue)] = queue
        for queue in queues.values():
            queue.deliver()

    def on_basic_publish(self, found):
        self._content = [found, None, b""]

    def _on_content(self, found):
        if isinstance(found, ContentHeader):
            self._content[1] = found
        else:
            self._content[2] += found.value
        published, header, body = self._content
        if len(body) >= header.body_size:
            self._content = None
            self._publish(published, header.properties, body)

    def _publish(self, published, properties, body):
        routed = self.broker.routed(published.exchange, published.routing_key)
        queues = [queue for queue in routed if self.session.node.knows(queue)]
        self._published += 1
        confirm = _Confirm(self, self._published, len(queues))
        if not queues and published.mandatory:
            returned = commands.Basic.Return(
                312, "NO_ROUTE", published.exchange, published.routing_key
            )
            self.send(returned, *_content(Message("", "", properties, body)))
        if not queues:
            confirm.say()
        expires = None
        if properties.expiration is not None:
            expires = self.loop.time() + int(properties.expiration) / 1000
        for queue in queues:
            message = Message(published.exchange, published.routing_key, properties, body, expires)
            queue.take(message, confirm.taken)
        if self.broker.alarm_until > self.loop.time():
            self.session.block(self.broker.alarm_until)

    def confirm(self, number, is_taken):
        """Say what became of a publish, in order and as slowly as the broker is."""
        if not self._confirms:
            return
        kind = commands.Basic.Ack if is_taken else commands.Basic.Nack
        due = max(self.loop.time() + self.broker.confirm_delay, self._confirmed_at)
        if due <= self.loop.time():
            self.send(kind(number))
        else:
            due = self._confirmed_at = due + 1e-6
            self.loop.call_at(due, self.send, kind(number))

    # --- what a client gets ---------------------------------------------------------------------

    def _held(self, queue, message, reader):
        self._tag += 1
        self.unacked[self._tag] = (queue, message, reader)
        return self._tag

    def deliver(self, reader, message):
        """Send a message to a reader."""
        tag = self._held(reader.queue, message, reader)
        reader.unacked += 1
        again = message.deliveries > 0
        found = commands.Basic.Deliver(reader.tag, tag, again, message.exchange, message.key)
        self.send(found, *_content(message))


class _Confirm:
    """What is said of a publish once every queue has said what it did with it."""

    def __init__(self, channel, number, count):
        self._channel = channel
        self._number = number
        self._left = count
        self._is_taken = True

    def taken(self, is_taken):
        self._is_taken = self._is_taken and is_taken
        self._left -= 1
        if not self._left:
            self.say()

    def say(self):
        self._channel.confirm(self._number, self._is_taken)


def _content(message):
    properties = message.properties
    more = {}
    if message.deliveries:
        more["x-delivery-count"] = message.deliveries
    if message.offset >= 0:
        more["x-stream-offset"] = message.offset
    if more:
        properties = copy(properties)
        properties.headers = {**(properties.headers or {}), **more}
    body = message.body
    size = FRAME_MAX - 8
    parts = [ContentBody(body[at : at + size]) for at in range(0, len(body), size)]
    return [ContentHeader(0, len(body), properties), *parts]


def _path(found):
    """Return a method's name, "queue_declare"."""
    kind, method = found.name.split(".")
    word = "".join(f"_{char.lower()}" if char.isupper() else char for char in method)
    return f"{kind.lower()}_{word.lstrip('_')}"


def _word(found):
    return _path(found).partition("_")[2]

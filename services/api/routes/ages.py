"""Headers with the services that do not work, and the age of the shown state.

``Muster-Away``: sentences, as in ``/health/ready``. ``Muster-State-Age``: the maximum age of the
state in seconds. Neither is set while all services work.
"""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.api.replica import Replica

AWAY, AGE = "Muster-Away", "Muster-State-Age"


class Ages:
    """Adds the headers to every answer of the API."""

    def __init__(self, app: ASGIApp, replica: Replica) -> None:
        self._app = app
        self._replica = replica

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and (away := self._replica.away()):
                headers = MutableHeaders(scope=message)
                text = "; ".join(item.sentence for item in away)
                headers[AWAY] = text.encode("ascii", "replace").decode()
                headers[AGE] = str(self._replica.age_seconds(away))
            await send(message)

        await self._app(scope, receive, sent)

"""What an API server does with webhooks, for the double: it asks them over HTTPS, as configured.

As a real one: rules and namespace selectors choose; the certificate must be for SERVICE.NAMESPACE.svc
and of an authority in caBundle; patches are carried out in order; what is not answered does as
failurePolicy says. Of selectors it knows the operators In and NotIn on the namespace's name.
Who asks stands in Impersonate-User and Impersonate-Group, for everybody here may impersonate; else
the shim adapter is its service account, an agent that has the name of a service account is that one, and
everybody else an administrator.
"""

import base64
import json
import ssl
import uuid
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from tests.kubernetes.patches import by_steps
from tests.kubernetes.store import ApiFailureError, Object, Store

_CONFIGURATIONS = tuple(
    f"{kind}webhookconfigurations.admissionregistration.k8s.io"
    for kind in ("mutating", "validating")
)
SERVICE_ACCOUNTS = {"muster": "system:serviceaccount:muster:shim-adapter"}  # by user agent
OPERATIONS = {"POST": "CREATE", "PUT": "UPDATE", "PATCH": "UPDATE"}


class Webhooks:
    """Asks what the store's configurations name; ``ports`` says where a Service answers."""

    def __init__(self, store: Store, ports: dict[str, int]) -> None:
        self._store = store
        self._ports = ports
        self.asked: list[str] = []

    async def admit(
        self,
        request: web.Request,
        what: tuple[str, str],
        where: tuple[str, str, str],
        body: Object,
    ) -> Object:
        """Return the object as it is to be stored. Raises ApiFailureError where it is refused.

        ``what`` is its resource and its kind.
        """
        (resource, kind), (namespace, name, _) = what, where
        operation = OPERATIONS.get(request.method)
        if operation is None or not namespace:
            return body
        old = self._store.get(resource, namespace, name) if name else None
        review = {
            "uid": str(uuid.uuid4()),
            "kind": {"kind": kind},
            "name": name or body.get("metadata", {}).get("name", ""),
            "namespace": namespace,
            "operation": operation,
            "userInfo": {
                "username": request.headers.get("Impersonate-User") or _user_of(request),
                "groups": request.headers.getall("Impersonate-Group", []),
            },
            "oldObject": old,
        }
        for configuration in _CONFIGURATIONS:
            for found in list(self._store.all(configuration).values()):
                for webhook in found["webhooks"]:
                    if _matches(webhook, resource, namespace, operation):
                        body = await self._ask(webhook, review, body)
        return body

    async def _ask(self, webhook: Object, review: Object, body: Object) -> Object:
        self.asked.append(webhook["name"])
        try:
            answer = await self._answer(webhook, {**review, "object": body})
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError) as error:
            if webhook["failurePolicy"] == "Ignore":
                return body
            text = f'failed calling webhook "{webhook["name"]}": {error}'
            raise ApiFailureError(500, "InternalError", text) from error
        if not answer["allowed"]:
            said = answer.get("status", {}).get("message", "")
            text = f'admission webhook "{webhook["name"]}" denied the request: {said}'
            raise ApiFailureError(403, "Forbidden", text)
        if "patch" not in answer:
            return body
        assert answer["patchType"] == "JSONPatch"
        return by_steps(body, json.loads(base64.b64decode(answer["patch"])))

    async def _answer(self, webhook: Object, request: Object) -> Object:
        url, name = self._where(webhook["clientConfig"])
        bundle = base64.b64decode(webhook["clientConfig"].get("caBundle") or "").decode()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=bundle)
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                url,
                json={**review, "request": request},
                ssl=context,
                server_hostname=name,
                timeout=aiohttp.ClientTimeout(total=webhook["timeoutSeconds"]),
            ) as response,
        ):
            response.raise_for_status()
            answer = await response.json()
        assert {key: answer[key] for key in review} == review
        assert answer["response"]["uid"] == request["uid"]
        return answer["response"]

    def _where(self, config: Object) -> tuple[str, str]:
        """Return the address that is asked, and the name that its certificate is to have."""
        if "url" in config:
            return config["url"], urlsplit(config["url"]).hostname or ""
        service = config["service"]
        url = f"https://127.0.0.1:{self._ports[service['name']]}{service['path']}"
        return url, f"{service['name']}.{service['namespace']}.svc"


def _user_of(request: web.Request) -> str:
    agent = request.headers.get("User-Agent", "")
    is_account = agent.startswith("system:serviceaccount:")
    return agent if is_account else SERVICE_ACCOUNTS.get(agent, "admin")


def _matches(webhook: Object, resource: str, namespace: str, operation: str) -> bool:
    plural, _, group = resource.partition(".")
    for expression in webhook["namespaceSelector"]["matchExpressions"]:
        assert expression["key"] == "kubernetes.io/metadata.name"
        is_in = namespace in expression["values"]
        if is_in is not {"In": True, "NotIn": False}[expression["operator"]]:
            return False
    return any(
        group in rule["apiGroups"]
        and plural in rule["resources"]
        and operation in rule["operations"]
        for rule in webhook["rules"]
    )

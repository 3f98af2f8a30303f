"""The webhook's HTTPS server: AdmissionReviews in, answers out.

`POST /mutate` for pods and workloads, `POST /validate` for the ConfigMaps. The answer is 400 if the
body is not an AdmissionReview, 413 if it is too large, 503 if it cannot be decided now: the API
server then applies its failurePolicy.
"""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

import orjson
import structlog
from aiohttp import web
from prometheus_client import Counter

from services.shim_adapter.admission.configmaps import judge
from services.shim_adapter.admission.decision import Verdict, decide, mapping
from services.shim_adapter.admission.watching import Watching
from services.shim_adapter.backends.kubernetes.client import ApiServerError

MAX_REVIEW = 8 * 1024 * 1024  # bytes of a request: two objects at the API server's own limit; 413
JUDGE_SECONDS = 8.0  # before the API server has given up; 503
REVIEW = "admission.k8s.io/v1"
_ANSWERS = Counter(
    "muster_admission_reviews", "Answers of the admission webhook", ["path", "answer"]
)
log = structlog.get_logger("muster.admission")


def make_app(watching: Watching) -> web.Application:
    """Return the application."""

    async def mutate(request: Mapping[str, Any]) -> Verdict:
        context = await watching.context(str(request.get("namespace") or "default"))
        return decide(request, context)

    async def validate(request: Mapping[str, Any]) -> Verdict:
        maps = dict(watching.maps)
        return await asyncio.to_thread(judge, request, watching.namespace, maps)

    app = web.Application(client_max_size=MAX_REVIEW)
    for path, answer in (("/mutate", mutate), ("/validate", validate)):
        app.router.add_post(path, _route(path, answer))
    return app


def _route(path: str, answer: Any) -> Any:
    async def route(request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(JUDGE_SECONDS):
                asked = _asked(await request.read())
                verdict = await answer(asked)
        except ValueError as error:
            _ANSWERS.labels(path, "malformed").inc()
            return web.Response(status=400, text=f"no AdmissionReview of {REVIEW}: {error}")
        except (ApiServerError, TimeoutError) as error:
            _ANSWERS.labels(path, "failed").inc()
            log.warning("a request could not be decided", path=path, error=str(error))
            return web.Response(status=503, text=f"cannot be decided now: {error}")
        _ANSWERS.labels(path, "allowed" if verdict.is_allowed else "denied").inc()
        return web.Response(body=_written(asked, verdict), content_type="application/json")

    return route


def _asked(body: bytes) -> Mapping[str, Any]:
    """Return the AdmissionRequest in a body. Raises ValueError."""
    review = mapping(orjson.loads(body), "the body")
    if review.get("apiVersion") != REVIEW or review.get("kind") != "AdmissionReview":
        raise ValueError(
            f"found {str(review.get('kind'))[:80]} {str(review.get('apiVersion'))[:80]}"
        )
    request = mapping(review.get("request"), "request")
    if not isinstance(request.get("uid"), str) or not request["uid"]:
        raise ValueError("request.uid: a text is expected")
    return request


def _written(request: Mapping[str, Any], verdict: Verdict) -> bytes:
    response: dict[str, Any] = {"uid": request["uid"], "allowed": verdict.is_allowed}
    if verdict.message:
        response["status"] = {"code": 403, "message": verdict.message}
    if verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(list(verdict.patch))).decode()
    return orjson.dumps({"apiVersion": REVIEW, "kind": "AdmissionReview", "response": response})

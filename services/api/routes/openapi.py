"""The OpenAPI document: FastAPI's, completed with what it cannot derive.

Content types and statuses of routes that write their own answers, and rules for names that are in
no signature, are defined here; schemathesis tests the routes against them.
"""

import re
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from services.api.access.guard import Access
from shared.model.names import GROUP, USER

Document = dict[str, Any]
_ERROR = {
    "description": "An error in YuniKorn's format; plain text for an unknown path or method",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["status_code", "message", "description"],
                "properties": {
                    "status_code": {"type": "integer"},
                    "message": {"type": "string"},
                    "description": {"type": "string"},
                },
            }
        },
        "text/plain": {"schema": {"type": "string"}},
    },
}
_BEARER = {
    "type": "http",
    "scheme": "bearer",
    "description": "Each operation has the role that its token needs as x-role",
}
_TEXT = {"text/plain": {"schema": {"type": "string"}}}
_CONTENT: dict[str, Document] = {
    "/metrics": _TEXT,
    "/ws/v1/metrics": _TEXT,
    "/debug/stack": _TEXT,
    "/ws/v1/config": {"application/x-yaml": {}, "application/json": {}},
}
_REFUSED = {  # of all that was sent, nothing was taken
    "/v1/manifests": {"description": "Nothing was accepted", "content": {"application/json": {}}},
    "/v1/manifests/delete": {
        "description": "Nothing was found", "content": {"application/json": {}}
    },
}  # fmt: skip
_MOVED = ("/ws/v1/fullstatedump", "/ws/v1/stack")
_MAY_BE_EMPTY = ("/v1/config", "/ws/v1/validate-conf")  # then the built-in configuration is meant


def _ecma(pattern: re.Pattern[str]) -> str:
    """Return a pattern as OpenAPI writes it."""
    return pattern.pattern.replace(r"\Z", "$")


_QUEUE = r"^[a-zA-Z0-9_:#@-]{1,64}(\.[a-zA-Z0-9_:#@-]{1,64}){0,20}$"
_ANY_NUMBER = r"^(\+?[0-9]{1,18})?$"
_SCHEMAS: dict[str, Document] = {  # of a parameter, by its name, or by that and its path
    "queue": {"type": "string", "pattern": _QUEUE},
    "user": {"type": "string", "pattern": _ecma(USER)},
    "group": {"type": "string", "pattern": _ecma(GROUP)},
    "state": {"type": "string", "enum": ["active", "rejected", "completed"]},
    "status": {
        "type": "string",
        "enum": ["", "new", "accepted", "running", "completing", "failing", "resuming"],
    },
    "count": {"type": "string", "pattern": r"^(\+?0{0,3}[1-9][0-9]{0,14})?$"},
    "start": {"type": "string", "pattern": _ANY_NUMBER},
    "/ws/v1/events/stream count": {"type": "string", "pattern": _ANY_NUMBER},
    "/ws/v1/partition/{partition}/queue/{queue}/applications/{state} state": {
        "type": "string",
        "enum": ["active"],
    },
}


def documented(app: FastAPI, access: Access) -> Document:
    """Return the document of an application; with authentication, operations require a token."""
    document = get_openapi(
        title=app.title, version=app.version, summary=app.summary, routes=app.routes
    )
    document["components"]["securitySchemes"] = {"bearer": _BEARER}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            _complete(path, operation)
            role = access.role_of(method.upper(), path)
            operation["x-role"] = role.label
            if role and access.authenticators:
                operation["security"] = [{"bearer": []}]
    return document


def _complete(path: str, operation: Document) -> None:
    _complete_parameters(path, operation)
    if path in _MAY_BE_EMPTY and "requestBody" in operation:
        operation["requestBody"]["required"] = False
    responses = operation["responses"]
    responses.pop("422", None)
    responses["default"] = _ERROR
    if path in _CONTENT:
        responses["200"]["content"] = _CONTENT[path]
    if path in _REFUSED:
        responses["422"] = _REFUSED[path]
    if path in _MOVED:
        moved = {"text/html": {"schema": {"type": "string"}}}
        responses["301"] = {"description": "Moved Permanently", "content": moved}


def _complete_parameters(path: str, operation: Document) -> None:
    parameters = operation.setdefault("parameters", [])
    named = {item["name"] for item in parameters}
    for name in re.findall(r"\{([^{}]+)\}", path):
        if name not in named:
            own = {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            parameters.append(own)
    for item in parameters:
        schema = _SCHEMAS.get(f"{path} {item['name']}") or _SCHEMAS.get(item["name"])
        if path.startswith("/ws/v1/") and schema is not None:
            item["schema"] = schema

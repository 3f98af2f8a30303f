"""Secrets in Kubernetes' protobuf, which is how helm 4 sends its records: read, never written.

The encoding is that of "Alternate representations of resources": the magic `k8s\\0`, then an envelope with
the kind and the object. Field numbers are those of k8s.io/api's generated.proto.
"""

import base64
from collections.abc import Iterator
from typing import Any

from tests.kubernetes.store import ApiFailureError, Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_METADATA = {
    1: "name",
    3: "namespace",
    5: "uid",
    6: "resourceVersion",
    11: "labels",
    12: "annotations",
}
_KEPT_BY_THE_SERVER = {4, 7, 8, 17}  # selfLink, generation, creationTimestamp, managedFields
_VARINT, _BYTES = 0, 2


def secret_of(data: bytes) -> Object:
    """Return a Secret. Raises ApiFailureError 415: it is anything else."""
    if not data.startswith(_MAGIC):
        raise _not_understood("no Kubernetes protobuf")
    envelope = dict(_fields(data[len(_MAGIC) :]))
    about = {number: value.decode() for number, value in _fields(envelope[1])}
    if (about.get(1), about.get(2)) != ("v1", "Secret"):
        raise _not_understood(f"protobuf of {about}")
    secret: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {}}
    for number, value in _fields(envelope[2]):
        if number == 1:
            secret["metadata"] = _metadata(value)
        elif number == 2:
            key, found = _entry(value)
            secret["data"][key] = base64.b64encode(found).decode()
        elif number == 3:
            secret["type"] = value.decode()
        else:
            raise _not_understood(f"field {number} of a Secret")
    return secret


def _metadata(data: bytes) -> Object:
    metadata: Object = {}
    for number, value in _fields(data):
        name = _METADATA.get(number)
        if name in ("labels", "annotations"):
            key, found = _entry(value)
            metadata.setdefault(name, {})[key] = found.decode()
        elif name is not None:
            metadata |= {name: value.decode()} if value else {}
        elif number not in _KEPT_BY_THE_SERVER and value:
            raise _not_understood(f"field {number} of metadata")
    return metadata


def _entry(data: bytes) -> tuple[str, bytes]:
    entry = dict(_fields(data))
    return entry[1].decode(), entry.get(2, b"")


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag & 7 == _BYTES:
            if at + value > len(data):
                raise _not_understood("protobuf that ends early")
            yield tag >> 3, data[at : at + value]
            at += value
        elif tag & 7 == _VARINT:
            yield tag >> 3, value
        else:
            raise _not_understood(f"wire type {tag & 7}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at
    raise _not_understood("protobuf that ends early")


def _not_understood(what: str) -> ApiFailureError:
    text = f"the body of the request was in an unknown format: {what}"
    return ApiFailureError(415, "UnsupportedMediaType", text)

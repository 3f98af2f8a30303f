"""Case W-16 and the form of answers: what is compressed, and for whom."""

import asyncio
import gzip
import json
from itertools import pairwise

import httpx
import pytest
from starlette.requests import Request

from services.api.web.answers import GZIP_FROM_BYTES, JSON, answer
from services.api.yunikorn import rows
from tests.builders import config_of
from tests.table import each_row
from tests.unit.api.following import System

LARGE = "x" * 5000


def answered(value, *accepted):
    """Return the answer to a request with these Accept-Encoding headers."""
    headers = [(b"accept-encoding", text.encode()) for text in accepted]
    return answer(Request({"type": "http", "method": "GET", "headers": headers}), value)


def is_packed(response):
    return response.headers.get("content-encoding") == "gzip"


def test_w_16_from_1400_bytes_on():
    assert GZIP_FROM_BYTES == 1400
    for size, expected in ((1399, False), (1400, True), (1401, True)):
        value = "x" * (size - len('""\n'))
        plain, packed = answered(value), answered(value, "gzip")
        assert len(plain.body) == size
        assert is_packed(packed) == expected
        assert not is_packed(plain)
        if expected:
            assert packed.body[:2] == b"\x1f\x8b"
            assert gzip.decompress(packed.body) == plain.body
            assert int(packed.headers["content-length"]) == len(packed.body) < size
        else:
            assert packed.body == plain.body


def test_w_16_the_bytes_count_that_would_be_sent():
    """A character counts as it is written: ``<`` as six, ``é`` as two."""
    for character, bytes_each in (("<", 6), ("\u00e9", 2)):
        fewest = -(-(GZIP_FROM_BYTES - 3) // bytes_each)
        assert not is_packed(answered(character * (fewest - 1), "gzip"))
        assert is_packed(answered(character * fewest, "gzip"))


@each_row(
    ("accepted", "expected"),
    [
        (["gzip"], True),
        (["GZIP"], True),
        (["deflate, gzip, br"], True),
        (["deflate,gzip;q=0.5"], True),
        (["br;q=1.0 , gzip ; q=0.001"], True),
        (["deflate", "gzip"], True),
        (["gzip;Q=1"], True),
        ([], False),
        ([""], False),
        (["identity"], False),
        (["*"], False),
        (["deflate, br"], False),
        (["x-gzip"], False),
        (["gzipped"], False),
        (["gzip;q=0"], False),
        (["gzip; q=0"], False),
        (["gzip;Q=0.000"], False),
        (["gzip;q=0."], False),
        (["deflate, gzip;q=0, br"], False),
        (["gzip;q=none"], False),
        (["gzip;q=-1"], False),
        (["gzip;q=nan"], False),
    ],
)
def test_w_16_only_who_lists_gzip_gets_it(accepted, expected):
    assert is_packed(answered(LARGE, *accepted)) == expected


def test_an_answer_that_is_packed_says_by_what_it_was_chosen():
    assert answered(LARGE, "gzip").headers["vary"] == "Accept-Encoding"


async def test_w_16_over_http_the_same_answer_comes_smaller():
    system = System(config_of("{name: a}"))
    for at in range(50):
        system.node(f"n{at}", vcore=1000, memory=1)
    path = "/ws/v1/partition/default/nodes"
    plain = await system.get(path, **{"Accept-Encoding": "identity"})
    packed = await system.get(path, **{"Accept-Encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content  # as the client unpacked it
    assert int(packed.headers["content-length"]) < len(plain.content)
    assert len(json.loads(packed.content)) == 50


@pytest.mark.parametrize("piece_bytes", [1, 500, 3000])
async def test_w_16_a_list_of_many_pieces_is_the_same_list(monkeypatch, piece_bytes):
    system = System(config_of("{name: a}"))
    for at in range(30):
        system.node(f"n{at}", vcore=1000, memory=1)
    path = "/ws/v1/partition/default/nodes"
    whole = await system.get(path, **{"Accept-Encoding": "identity"})
    assert int(whole.headers["content-length"]) == len(whole.content)
    monkeypatch.setattr(rows, "PIECE_BYTES", piece_bytes)
    plain = await system.get(path, **{"Accept-Encoding": "identity"})
    packed = await system.get(path, **{"Accept-Encoding": "gzip"})
    assert plain.content == packed.content == whole.content
    assert "content-length" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert plain.headers["content-type"] == whole.headers["content-type"] == JSON
    cors = "access-control-allow-origin"
    assert plain.headers[cors] == packed.headers[cors] == whole.headers[cors] == "*"


@pytest.mark.parametrize("accepted", ["identity", "gzip"])
async def test_while_a_list_is_sent_others_have_their_turn_after_every_piece(accepted):
    request = Request(
        {"type": "http", "method": "GET", "headers": [(b"accept-encoding", accepted.encode())]}
    )
    turns, written = [0], []

    async def others():
        while True:
            await asyncio.sleep(0)
            turns[0] += 1

    def write(row):
        written.append(turns[0])
        return b"x" * rows.PIECE_BYTES

    task = asyncio.create_task(others())
    await asyncio.sleep(0)
    response = await rows.listed(request, range(20), write)
    pieces = [piece async for piece in response.body_iterator]
    task.cancel()
    assert all(before < after for before, after in pairwise(written))
    if accepted == "identity":
        assert max(map(len, pieces)) <= rows.PIECE_BYTES + len("],\n")


async def test_w_16_an_error_is_short_and_plain():
    system = System(config_of("{name: a}"))
    path = "/ws/v1/partition/default/node/none"
    refused: httpx.Response = await system.get(path, **{"Accept-Encoding": "gzip"})
    assert (refused.status_code, "content-encoding" in refused.headers) == (404, False)

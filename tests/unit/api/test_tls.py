"""HTTPS: the certificate of the files, also when they change; what does not hold changes nothing."""

import asyncio
import os
import ssl
import subprocess
import sys
from contextlib import suppress

import httpx
import pytest
import trustme
from cryptography import x509
from fastapi import FastAPI, Response

from services.api.web import tls
from services.api.web.server import listen, serve
from services.api.web.tls import Certificate, CertificateError
from tests.patience import until

AUTHORITY = trustme.CA()


class Files:
    """A certificate and its key, as files."""

    def __init__(self, folder) -> None:
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.renew()

    def renew(self, *, which=("certificate", "key")):
        issued = AUTHORITY.issue_cert("127.0.0.1")
        if "certificate" in which:
            self.certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        if "key" in which:
            self.key.write_bytes(issued.private_key_pem.bytes())
        return issued

    @property
    def serial(self):
        return x509.load_pem_x509_certificate(self.certificate.read_bytes()).serial_number


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(tls, "LOOK_SECONDS", 0.01)
    return Files(tmp_path)


@pytest.fixture
async def served(files):
    """Yield the port of a server with the certificate of the files."""
    app = FastAPI()

    @app.get("/v1/applications")
    async def anything() -> Response:
        return Response("[]", media_type="application/json")

    listening = listen("127.0.0.1", 0)
    files.in_use = Certificate(files.certificate, files.key)
    task = asyncio.create_task(serve(app, listening, files.in_use))
    yield listening.getsockname()[1]
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def trusting():
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


async def serial_at(port):
    """Return the serial number of the certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting())
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(shown).serial_number


async def until_shown(port, serial):
    async def is_shown():
        return await serial_at(port) == serial

    await until(is_shown, "the certificate")


async def test_who_trusts_the_authority_is_answered_and_nobody_else_asks(served):
    url = f"https://127.0.0.1:{served}/v1/applications"
    async with httpx.AsyncClient(verify=trusting()) as client:
        assert (await client.get(url)).json() == []
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            await client.get(url)
        with pytest.raises(httpx.HTTPError):
            await client.get(url.replace("https", "http"))


async def test_old_versions_of_tls_are_not_spoken(served):
    old = trusting()
    with pytest.warns(DeprecationWarning, match="TLS"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, OSError)):
        await asyncio.open_connection("127.0.0.1", served, ssl=old)


async def test_a_certificate_that_is_replaced_is_shown_from_then_on_and_what_is_open_stays(
    served, files
):
    before = files.serial
    assert await serial_at(served) == before
    async with httpx.AsyncClient(verify=trusting()) as client:
        url = f"https://127.0.0.1:{served}/v1/applications"
        await client.get(url)
        files.renew()
        await until_shown(served, files.serial)
        assert (await client.get(url)).status_code == 200
    assert files.serial != before


async def test_half_a_change_changes_nothing_and_the_other_half_does(served, files):
    before = files.serial
    issued = files.renew(which=("certificate",))
    with pytest.raises(CertificateError, match="MISMATCH"):
        Certificate(files.certificate, files.key)
    files.in_use.reload_if_changed()
    assert await serial_at(served) == before
    files.key.write_bytes(issued.private_key_pem.bytes())
    await until_shown(served, files.serial)


@pytest.mark.parametrize("text", [b"", b"no certificate", None])
def test_what_does_not_hold_changes_nothing(files, text):
    certificate = Certificate(files.certificate, files.key)
    for path in (files.certificate, files.key):
        path.unlink() if text is None else path.write_bytes(text)
    certificate.reload_if_changed()
    certificate.reload_if_changed()
    files.renew()
    certificate.reload_if_changed()
    shown = ssl.create_default_context()
    shown.load_cert_chain(files.certificate, files.key)


def test_one_file_may_hold_both(files):
    files.certificate.write_bytes(files.certificate.read_bytes() + files.key.read_bytes())
    Certificate(files.certificate, None)


def test_a_start_with_what_does_not_hold_is_refused_with_the_files(files, tmp_path):
    with pytest.raises(CertificateError, match="nowhere"):
        Certificate(tmp_path / "nowhere", None)
    with pytest.raises(CertificateError, match=str(files.certificate)):
        Certificate(files.certificate, None)  # which holds no key
    locked = subprocess.run(
        ["openssl", "rsa", "-aes256", "-passout", "pass:x", "-in", str(files.key)],
        capture_output=True, check=False,
    )  # fmt: skip
    if locked.returncode == 0:
        files.key.write_bytes(locked.stdout)
        with pytest.raises(CertificateError, match="password"):
            Certificate(files.certificate, files.key)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"MUSTER_HTTP_KEY": "x"}, b"MUSTER_HTTP_CERTIFICATE is missing"),
        ({"MUSTER_HTTP_CERTIFICATE": "/nowhere/tls.crt"}, b"/nowhere/tls.crt"),
    ],
)
async def test_a_service_that_cannot_have_its_certificate_ends_with_78(variables, said):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.api", stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "MUSTER_HTTP_PORT": "0",
             "MUSTER_BUS_URL": "amqp://127.0.0.1/", **variables},
    )  # fmt: skip
    _, told = await process.communicate()
    assert process.returncode == 78
    assert said in told


async def test_the_command_line_asks_by_https_and_trusts_the_authority_that_it_is_told(
    served, tmp_path
):
    AUTHORITY.cert_pem.write_to_path(tmp_path / "ca.pem")
    url = f"https://127.0.0.1:{served}"
    command = (sys.executable, "-m", "tools.main", "apps", "-o", "json", "--url", url)
    environment = {"PATH": os.environ["PATH"]}

    async def run(**more):
        process = await asyncio.create_subprocess_exec(
            *command, env=environment | more, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    assert await run(SSL_CERT_FILE=str(tmp_path / "ca.pem")) == (0, "[]\n", "")
    status, _, said = await run()
    assert status == 3
    assert "SSL_CERT_FILE" in said

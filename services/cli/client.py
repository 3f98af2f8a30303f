"""The CLI's side of the API: one request, one answer, and every failure as a sentence."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

from services.cli.exits import Exit

if TYPE_CHECKING:
    import httpx

DEFAULT_URL = "http://127.0.0.1:9080"
MAX_NAME = 500
_MAX_TOKEN = 8_192  # characters of a token on the command line or in its file; an error
_TIMEOUT_SECONDS = 30.0
_WHO_ARE_YOU = 401
_NOT_FOUND = 404
_NO_ANSWER_IN_TIME = 504
_ATTEMPTS = 3
_MAX_DIGITS = 12  # digits of a state's age in a header; a longer age counts as 0
_PAUSE_SECONDS = 1.0
_ANOTHER = "name another place with --url or MUSTER_API_URL"


class ApiError(RuntimeError):
    """A request without the answer that was wanted; the message is the sentence for users."""

    exit_status = Exit.NO_ANSWER


class UnheardError(ApiError):
    """A request was sent and there was no answer: what was asked may have been done."""


class RefusedError(ApiError):
    """The API would not do what was asked, or what was asked for is not there."""

    exit_status = Exit.REFUSED


def path_of(*names: str) -> str:
    """Return a path of the API: every name is one segment of it, whatever stands in it."""
    return "".join(f"/{quote(name, safe='')}" for name in names)


def checked_name(name: str) -> str:
    """Return a name that may be asked for. Raises ValueError with what is wrong."""
    if not name or name in {".", ".."} or "/" in name or not name.isprintable():
        raise ValueError(f"{name!r} is no name: one without / and control characters is needed")
    if len(name) > MAX_NAME:
        raise ValueError(f"a name has at most {MAX_NAME} characters, found {len(name)}")
    return name


def checked_url(url: str) -> str:
    """Return where an API may be. Raises ValueError with what is wrong."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        is_one = False
    if not is_one:
        raise ValueError(f"{url!r} is no address: expected http://HOST:PORT or https://HOST:PORT")
    return url.rstrip("/")


def read_token(text: str) -> str:
    """Return a token, that of a file where a text begins with @. Raises ValueError without it."""
    if text.startswith("@"):
        try:
            with Path(text[1:]).open() as file:
                text = file.read(_MAX_TOKEN + 2).strip()
        except OSError as error:
            raise ValueError(f"{text[1:]}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ValueError(f"{text[1:]} holds no token: it is not text") from error
        if not text:
            raise ValueError("the file of the token is empty")
    if len(text) > _MAX_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(f"a token has at most {_MAX_TOKEN} letters, digits and signs, no blanks")
    return text


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < _MAX_DIGITS else 0


class Client:
    """A client of one API. Every method raises ApiError; RefusedError where the API refused."""

    def __init__(
        self, url: str, token: str = "", timeout_seconds: float = _TIMEOUT_SECONDS
    ) -> None:
        self.url = url.rstrip("/")
        self.away = ""  # what does not work, as the latest answer says; "": all does
        self.age_seconds = 0  # of the state that it was made of
        self._token = token
        self._timeout_seconds = timeout_seconds

    def get(
        self,
        path: str,
        params: dict[str, str] | None = None,
        refusals: dict[str, str] | None = None,
    ) -> Any:
        """Return the answer to a GET. ``refusals``: a better sentence for one of YuniKorn's."""
        try:
            return self._value(self._send("GET", path, b"", params or {}))
        except RefusedError as error:
            raise RefusedError((refusals or {}).get(str(error), str(error))) from error

    def delete(self, path: str, params: dict[str, str] | None = None) -> Any:
        """Return the answer to a DELETE."""
        return self._value(self._send("DELETE", path, b"", params or {}))

    def post(self, path: str, body: bytes = b"", params: dict[str, str] | None = None) -> Any:
        """Return the answer to a POST."""
        return self._value(self._send("POST", path, body, params or {}))

    def judged(self, method: str, path: str, body: bytes, params: dict[str, str]) -> Any:
        """Return the verdict on a file, also where the API refuses it (422).

        One whose answer does not come is sent again under the same key: it is carried out once.
        """
        response = self._until_heard(method, path, body, params)
        value = self._json(response)
        is_verdict = isinstance(value, dict) and "refused" in value
        return value if is_verdict else self._value(response)

    def _until_heard(
        self, method: str, path: str, body: bytes, params: dict[str, str]
    ) -> "httpx.Response":
        """Return the answer to a request that may be repeated, of at most _ATTEMPTS attempts."""
        key = uuid4().hex
        for attempt in range(1, _ATTEMPTS):
            try:
                response = self._send(method, path, body, params, key=key)
            except UnheardError:
                pass
            except ApiError:
                if attempt == 1:  # it was never sent
                    raise
            else:
                if response.status_code != _NO_ANSWER_IN_TIME:
                    return response
            time.sleep(_PAUSE_SECONDS)
        return self._send(method, path, body, params, key=key)

    def text(self, path: str, accept: str) -> str:
        """Return the answer to a GET as the API writes it."""
        response = self._send("GET", path, b"", {}, accept)
        if response.is_error:
            self._value(response)
        return response.text

    def _send(
        self,
        method: str,
        path: str,
        body: bytes,
        params: dict[str, str],
        accept: str = "application/json",
        key: str = "",
    ) -> "httpx.Response":
        import httpx

        headers = {"Accept": accept, **({"Content-Type": "application/yaml"} if body else {})}
        if key:
            headers["Idempotency-Key"] = key
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            response = httpx.request(
                method,
                f"{self.url}{path}",
                content=body or None,
                params=params,
                headers=headers,
                timeout=self._timeout_seconds,
                verify=self.url.startswith("https:"),  # certificates are read where they count
            )
        except httpx.ConnectError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise ApiError(
                    f"{self.url} is not believed: {error}. SSL_CERT_FILE names the file of its "
                    f"authority; or {_ANOTHER}"
                ) from error
            raise ApiError(
                f"no answer from {self.url}: {error}. Is Muster running there? Start it with "
                f"`muster up`, or {_ANOTHER}"
            ) from error
        except httpx.TimeoutException as error:
            said = f"no answer from {self.url} within {self._timeout_seconds:g} s"
            raise UnheardError(f"{said}; try again, or {_ANOTHER}") from error
        except httpx.NetworkError as error:
            said = f"the connection to {self.url} was lost: {error or 'there was no answer'}"
            raise UnheardError(f"{said}; try again, or {_ANOTHER}") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            said = f"{self.url} did not answer as a web server does: {error}"
            is_unheard = isinstance(error, httpx.RemoteProtocolError)
            kind = UnheardError if is_unheard else ApiError
            raise kind(f"{said}. To ask elsewhere, {_ANOTHER}") from error
        self.away = response.headers.get("Muster-Away", "")
        self.age_seconds = _whole(response.headers.get("Muster-State-Age", ""))
        return response

    def _json(self, response: "httpx.Response") -> Any:
        try:
            return response.json()
        except ValueError as error:
            where = f"{response.request.method} {response.request.url}"
            if response.status_code == _NOT_FOUND:
                raise ApiError(
                    f"{where} answered 404: the server there does not know this page. It is "
                    f"an older Muster (see `muster version`), or not Muster; {_ANOTHER}"
                ) from error
            if response.status_code == _WHO_ARE_YOU:
                raise RefusedError(
                    f"{where} answered 401: a token is required; set --token or MUSTER_TOKEN"
                ) from error
            kind = response.headers.get("content-type", "no content type").split(";")[0]
            raise ApiError(
                f"{where} answered {response.status_code} with {kind}, not JSON: "
                f"is that Muster's API? If not, {_ANOTHER}"
            ) from error

    def _value(self, response: "httpx.Response") -> Any:
        value = self._json(response)
        if response.is_error:
            said = value.get("message", "") if isinstance(value, dict) else str(value)
            where = f"{response.request.method} {response.request.url}"
            if response.status_code == _NO_ANSWER_IN_TIME:
                raise UnheardError(said or f"{where}: no service behind it answered in time")
            raise RefusedError(said or f"{where} answered {response.status_code}")
        return value

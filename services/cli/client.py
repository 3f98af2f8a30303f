"""The CLI's side of the API: one request, one answer, and every failure as a sentence."""

from typing import Any

DEFAULT_URL = "http://127.0.0.1:9080"
_TIMEOUT_SECONDS = 30.0


class ApiError(RuntimeError):
    """The API could not be reached, or would not do what was asked."""


class Client:
    """A client of one API."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def get(self, path: str) -> Any:
        """Return the answer to a GET. Raises ApiError."""
        return self._request("GET", path)

    def delete(self, path: str) -> Any:
        """Return the answer to a DELETE. Raises ApiError."""
        return self._request("DELETE", path)

    def post(self, path: str, body: bytes, params: dict[str, str]) -> tuple[int, Any]:
        """Return the status and answer to a POST. Raises ApiError when there is no answer."""
        import httpx

        try:
            response = httpx.post(
                f"{self._url}{path}",
                content=body,
                params=params,
                headers={"Content-Type": "application/yaml"},
                timeout=_TIMEOUT_SECONDS,
            )
            return response.status_code, response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise ApiError(self._away(error)) from error

    def _request(self, method: str, path: str) -> Any:
        import httpx

        try:
            response = httpx.request(method, f"{self._url}{path}", timeout=_TIMEOUT_SECONDS)
            value = response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise ApiError(self._away(error)) from error
        if response.is_error:
            message = value.get("message", "") if isinstance(value, dict) else str(value)
            raise ApiError(message or f"{method} {path} answered {response.status_code}")
        return value

    def _away(self, error: Exception) -> str:
        return (
            f"no answer from {self._url}: {error}. Is Muster running there? Start it with "
            "`muster up`, or name another place with --url"
        )

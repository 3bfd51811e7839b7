"""Catalogs that are asked over HTTP: JSON there and back, and every failure told as one error of catalogs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, ClassVar

import httpx

from streaming.base import CatalogError, SettingsError, host_of
from streaming.catalogs.catalog import Catalog
from streaming.catalogs.entries import TableEntry

_SECONDS = 30.0
_ATTEMPTS_TO_CONNECT = 2
_MOST_SHOWN = 300
NO_CONTENT: Mapping[str, Any] = {}


def address_of(url: str, credentials: str) -> str:
    """The address for people of a catalog at `url`; `credentials` says where these are, as they are not in it.

    Raises:
        SettingsError: the URL is none, or has a user or password in it.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
        raise SettingsError(
            f"TIDEMARK_CATALOG_URL ({host_of(url)}) is no address of a catalog",
            f"write https://host:port, without a user, and {credentials}.",
            field="TIDEMARK_CATALOG_URL",
        )
    return host_of(url)


class RestClient:
    """A client of a catalog of a `kind` at `url`, to whose server each request bears the `token`.

    Raises:
        SettingsError: the URL is none, or has a user or password in it.
    """

    def __init__(self, kind: str, url: str, token: str | None) -> None:
        self._kind = kind
        self.address = address_of(url, "what lets you in as TIDEMARK_CATALOG_TOKEN")
        self._client = httpx.Client(
            base_url=f"{url.rstrip('/')}/",
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=_SECONDS,
            transport=httpx.HTTPTransport(retries=_ATTEMPTS_TO_CONNECT),
        )

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Mapping[str, Any] | None:
        """The answer to a GET; None where there is no such thing."""
        return self._answer("GET", path, params=params, passing=_is_not_there)

    def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The answer to a POST; None where there is such a thing already."""
        return self._answer("POST", path, body=body, passing=_is_there)

    def delete(self, path: str) -> Mapping[str, Any] | None:
        """The answer to a DELETE; None where there is no such thing."""
        return self._answer("DELETE", path, passing=_is_not_there)

    def refusal(self, what: str, next_step: str) -> CatalogError:
        """An error that says what this server does not do."""
        return CatalogError(f"the {self._kind} catalog at {self.address} {what}", next_step, address=self.address)

    def _answer(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        passing: Callable[[httpx.Response], bool],
    ) -> Mapping[str, Any] | None:
        try:
            response = self._client.request(method, path, params=params, json=body)
        except httpx.HTTPError as error:
            # Without the cause, whose text has the whole URL.
            raise self.refusal(
                f"cannot be reached ({type(error).__name__})",
                "start it, or correct TIDEMARK_CATALOG_URL; run the command again, which goes on with what is left.",
            ) from None
        if passing(response):
            return None
        if not response.is_success:
            raise self._refused(method, path, response)
        if not response.content:
            return NO_CONTENT
        try:
            answer = response.json()
        except ValueError:
            answer = None
        # Of an address that is some web page's.
        if not isinstance(answer, dict):
            raise self.refusal(
                f"answers {method} {path} with what is no JSON object: {response.text[:_MOST_SHOWN]!r}",
                "correct TIDEMARK_CATALOG_URL.",
            )
        return answer

    def _refused(self, method: str, path: str, response: httpx.Response) -> CatalogError:
        if response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            step = "set TIDEMARK_CATALOG_TOKEN to a token that may do that, and run the command again."
        elif response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            step = "see its log, and run the command again, which goes on with what is left."
        else:
            step = "correct what it names, and run the command again, which goes on with what is left."
        return self.refusal(f"refuses {method} {path} ({response.status_code}): {_message(response.text)}", step)


class RestCatalog(Catalog):
    """The catalog `name` of the server at `url`, to which each request bears the `token`.

    Raises:
        SettingsError: the URL is none, or has a user or password in it.
    """

    page_token: ClassVar[str]
    """The parameter of a request that says which page of a list is asked for."""
    next_page_token: ClassVar[str]
    """The field of a page that says which one comes next."""

    def __init__(self, url: str, name: str, token: str | None = None) -> None:
        self._rest = RestClient(self.kind, url, token)
        self._name = name

    @property
    def address(self) -> str:
        """The server and the name of the catalog."""
        return f"{self._rest.address}/{self._name}"

    def full_name(self, entry: TableEntry) -> str:
        """Catalog, schema and table."""
        return f"{self._name}.{entry}"

    def change(self, entry: TableEntry, standing: TableEntry) -> None:
        """Take the table out and register it as it is to be: no API of these changes one."""
        self.register_anew(entry, standing)

    def pages(self, path: str, what: str, params: Mapping[str, str] | None = None) -> Iterator[Any]:
        """Everything of a list, page after page; nothing where there is nothing that it could be in."""
        token = ""
        while True:
            asked = {**(params or {}), **({self.page_token: token} if token else {})}
            page = self._rest.get(path, asked or None)
            yield from (page or {}).get(what) or ()
            token = (page or {}).get(self.next_page_token) or ""
            if not token:
                return

    def close(self) -> None:
        """Close the connections."""
        self._rest.close()


def _is_not_there(response: httpx.Response) -> bool:
    return response.status_code == HTTPStatus.NOT_FOUND


def _is_there(response: httpx.Response) -> bool:
    """True if there is such a thing already: Unity Catalog says so with status 400, too, and `TABLE_ALREADY_EXISTS`."""
    if response.status_code == HTTPStatus.BAD_REQUEST:
        return str(_error(response.text).get("error_code")).endswith("ALREADY_EXISTS")
    return response.status_code == HTTPStatus.CONFLICT


def _message(text: str) -> str:
    """The sentence for people in a body of an error."""
    return str(_error(text).get("message") or text or "it gives no reason")[:_MOST_SHOWN]


def _error(text: str) -> Mapping[str, Any]:
    """A body of an error: of Unity Catalog an object, of Iceberg's REST one in `error`; empty where it is neither."""
    try:
        body = json.loads(text)
    except ValueError:
        return {}
    error = body.get("error", body) if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {}

"""A bucket or container of an object store as a place of files."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import from_url

from streaming.base import SettingsError, SinkError
from streaming.sinks.files import Place
from streaming.tables import s3

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Store

_TIMEOUT, _CONNECT_TIMEOUT = "60 seconds", "5 seconds"
# Whoever delivers tries again by itself, later each time, and can be told to stop meanwhile.
_RETRIES: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=15)}
_AT_ONCE = 16
_LISTED_AT_ONCE = 1_000
# By its code: stores also answer 400 where a token has expired, which is about no object.
_OF_THE_OBJECT = ("EntityTooLarge", "KeyTooLongError", "RequestBodyTooLarge", "InvalidResourceName")
_REFUSED = re.compile(rf"<Code>({'|'.join(_OF_THE_OBJECT)})</Code>|status code: 41[34]|\b41[34] [\w ]*Too (Large|Long)")
_SAID = re.compile(r"<Code>([^<]*)</Code>.*?<Message>([^<]*)</Message>", re.DOTALL)
_TOLD = 300


class _ObjectRefused(Exception):
    """The store takes no such object; another one it would take."""


class ObjectStore(Place):
    """Objects below a URL; what is put is seen whole or not at all, as stores do it.

    `options` are those of the client library, `secret_options` the environment variables that hold further ones. What
    is in neither is found as the store's own tools find it: variables such as `AWS_ACCESS_KEY_ID`, the identity of the
    machine or of the container.

    Raises:
        SinkError: a variable is not set, or the options do not fit the store.
    """

    def __init__(self, url: str, options: Mapping[str, str], secret_options: Mapping[str, str]) -> None:
        self.address = url.rstrip("/")
        given: dict[str, Any] = dict(options)
        for option, variable in secret_options.items():
            if variable not in os.environ:
                raise SinkError(f"{url}: option {option!r} is to be in {variable}, which is not set; set it.")
            given[option] = os.environ[variable]
        client: Any = {"timeout": _TIMEOUT, "connect_timeout": _CONNECT_TIMEOUT}
        if _address(url, given).startswith("http://"):
            client["allow_http"] = True
        try:
            self._store: Store = (
                from_url(self.address, mkdir=True)
                if url.startswith("file:")
                else from_url(self.address, config=given, client_options=client, retry_config=_RETRIES)  # type: ignore[call-overload]
            )
        except (BaseError, ValueError, OSError) as error:
            # Without the library's own text, which may quote what it was given.
            raise SinkError(
                f"the store of {self.address!r} cannot be opened ({type(error).__name__}) with the options "
                f"{', '.join(sorted(given)) or 'none'}; correct their names and values."
            ) from error.with_traceback(None)

    def put(self, path: str, content: bytes) -> None:
        """Put an object.

        Raises:
            SinkError: the store is away, or refuses it.
        """
        try:
            self._put(path, content)
        except _ObjectRefused as error:
            raise SinkError(f"{self.address}/{path} is refused: {error} It is put again by itself.") from error

    def put_each(self, objects: Mapping[str, bytes]) -> dict[str, str]:
        """Put objects, some at once; returns what the store says of those that it refuses for what they are.

        Raises:
            SinkError: the store is away; any of them may be there.
        """

        def refused(item: tuple[str, bytes]) -> str | None:
            try:
                self._put(*item)
            except _ObjectRefused as error:
                return str(error)
            return None

        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="objects") as pool:
            reasons = pool.map(refused, objects.items())
            return {path: why for path, why in zip(objects, reasons, strict=True) if why is not None}

    def read(self, path: str) -> bytes | None:
        with self._told("read"):
            try:
                return bytes(self._store.get(path).bytes())
            except FileNotFoundError:
                return None

    def remove(self, paths: Collection[str]) -> None:
        with self._told("deleted"):
            for path in paths:
                try:
                    self._store.delete(path)
                except FileNotFoundError:
                    continue

    def paths(self) -> Iterator[str]:
        with self._told("listed"):
            for listed in self._store.list(chunk_size=_LISTED_AT_ONCE):
                for each in listed:
                    if not any(part.startswith(("_", ".")) for part in each["path"].split("/")):
                        yield each["path"]

    def _put(self, path: str, content: bytes) -> None:
        with self._told("put"):
            try:
                self._store.put(path, content)
            except BaseError as error:
                if _REFUSED.search(str(error)):
                    raise _ObjectRefused(_said(error)) from error
                raise

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise SinkError(
                f"{self.address}: nothing can be {what}, for the bucket or container is not there. Create it; the "
                "batch is sent again by itself."
            ) from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise SinkError(
                f"{self.address}: objects may not be {what} with these credentials ({_said(error)}) Grant the right, "
                "or give others; the batch is sent again by itself."
            ) from error
        except (BaseError, OSError) as error:
            raise SinkError(f"{self.address} is away: {_said(error)} The batch is sent again by itself.") from error


def _said(error: Exception) -> str:
    """The message of the store, without the request, which may hold parts of a credential."""
    text = str(error)
    match = _SAID.search(text)
    if match is not None:
        return f"{match[1]}: {match[2].rstrip('.')}."
    first = re.split(r"\n\s*\n|Debug source", text.strip())[0]
    return " ".join(re.sub(r"\?[^ )]*", "", first).split())[:_TOLD].rstrip(".") + "."


def _address(url: str, given: Mapping[str, str]) -> str:
    """The address of the store as declared, else as the environment says; "" for that of whoever offers it."""
    if "endpoint" in given or not s3.on_s3(url):
        return given.get("endpoint", "")
    try:
        s3.check_endpoint()
    except SettingsError as error:
        raise SinkError(str(error)) from error
    return s3.endpoint() or ""

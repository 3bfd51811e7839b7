"""Rows to an index of OpenSearch, each a document whose id and version tell what it is, so that none comes twice."""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, ClassVar, TypeVar

import httpx

from streaming.base import (
    Dataset,
    DeclarationError,
    SinkError,
    check_tuple,
    check_type,
    check_url,
    dataset_at,
    host_of,
    interval,
    retry_after,
)
from streaming.lake import Lake
from streaming.sinks.encoding import json_objects, json_texts
from streaming.sinks.sink import (
    CHANGE,
    DELETE,
    REVISION,
    Delivered,
    Guarantee,
    NumberedBatch,
    PutAside,
    RefusedRow,
    Sink,
    Target,
)

_T = TypeVar("_T")
_INDEX = re.compile(r"(?![-_+.])[^\s\\/*?\"<>|,#:]{1,255}")
_LONGEST_ID = 512
"""Bytes that OpenSearch takes as an id."""
_FIRST_VERSION = 2**62
"""The version of revision 0: versions are not negative, and revisions before 1970 are."""
_REQUEST_BYTES = 8 * 2**20
_TOLD = 500

_TAKEN, _CREATED, _MISSING, _CONFLICT, _BAD, _TOO_LARGE, _FORBIDDEN = 200, 201, 404, 409, 400, 413, 403
_ABOUT_ROWS = ("mapper_parsing_exception", "strict_dynamic_mapping_exception")
"""Kinds of errors that the values of a row lead to; others are about the index or the server."""
_ABOUT_EITHER = "illegal_argument_exception"
_ABOUT_INDEX = ("no write index", "data stream", "pipeline with id")
_ABOUT_ONE_ROW = "immense term"
"""Words of `illegal_argument_exception` about the index, and about one row alone; its kind says neither."""


@dataclass(frozen=True)
class OpenSearchIndex(Target):
    """Rows as documents of `index` at `url`; where there is a `key`, one document for each value of those columns.

    `index` is one index, or an alias of one. One of several, as one that rolls over, and a data stream are refused.

    Exactly once in effect: a document's id is the key, or without one the place of the row in the delivery, so what is
    sent again replaces itself. With a key its version is the row's revision, so a row never takes the place of a newer
    one; of rows with the same revision the one delivered last stays. Deletes of changes delete. OpenSearch forgets
    after `index.gc_deletes`, a minute, which revision was deleted.

    A document is the row as JSON. An index that is not there is made by the server with the types that it guesses, so
    make it before with a mapping. Rows that the mapping refuses, or that are too large, become dead letters. Rows are
    found a moment later, as the index has it (`refresh_interval`).

    `password` names the environment variable that holds that of `user`. `ca`: a PEM file with who has signed the
    server's certificate, where this machine does not trust them.

    Raises:
        DeclarationError: the URL, the index or an interval cannot be.
    """

    url: str
    index: str
    key: tuple[str, ...] = ()
    batch: int = 5_000
    flush: str | None = "5 seconds"
    user: str | None = None
    password: str | None = None
    ca: str | None = None
    timeout: str = "30 seconds"

    kind: ClassVar[str] = "opensearch"
    guarantee: ClassVar[Guarantee] = "exactly once"
    keeps_keys: ClassVar[bool] = True

    def __post_init__(self) -> None:
        named = "name them with user= and password='NAME_OF_A_VARIABLE'"
        check_url("OpenSearchIndex", self.url, "https://host:9200", instead=named)
        check_type("index of OpenSearchIndex", self.index, str, "its name, such as 'orders'")
        if not _INDEX.fullmatch(self.index) or self.index != self.index.lower():
            raise DeclarationError(
                f"index={self.index!r} of OpenSearchIndex cannot be the name of an index",
                "use lower-case letters, digits, '-', '_' and '.', with a letter or digit first.",
                field="index",
                value=self.index,
            )
        check_tuple("key of OpenSearchIndex", self.key, str, "a tuple of columns, such as key=('id',)")
        if (self.user is None) != (self.password is None):
            raise DeclarationError(
                f"user={self.user!r} and password={self.password!r} of OpenSearchIndex belong together",
                "name both, the password by a variable of the environment, or leave both out.",
            )
        for length in filter(None, (self.flush, self.timeout)):
            interval(length)

    @property
    def address(self) -> str:
        """Host and index."""
        return f"{host_of(self.url)}/{self.index}"

    def datasets(self, lake: Lake) -> tuple[Dataset, ...]:
        """The index at its host."""
        there = dataset_at(str(httpx.URL(self.url).copy_with(path=f"/{self.index}")))
        return () if there is None else (there,)

    def connect(self, lake: Lake, delivered: Delivered) -> Sink:
        """A client that keeps its connections.

        Raises:
            SinkError: the variable of the password is not set, or the file `ca` cannot be read.
        """
        auth = None
        if self.user is not None and self.password is not None:
            if self.password not in os.environ:
                raise SinkError(
                    f"{self.address}: the password of {self.user!r} is to be in {self.password}, which is not set; set "
                    "it."
                )
            auth = httpx.BasicAuth(self.user, os.environ[self.password])
        try:
            trusted = ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise SinkError(f"{self.address}: ca={self.ca!r} cannot be read ({error}); name a PEM file.") from error
        client = httpx.Client(
            base_url=self.url, auth=auth, verify=trusted, timeout=interval(self.timeout).total_seconds()
        )
        return _OpenSearchSink(client, self.address, self.index, delivered)


@dataclass(frozen=True)
class Action:
    """One row of a bulk request: its position in the batch, and the lines that say what to do."""

    position: int
    lines: bytes


def actions(batch: NumberedBatch, delivered: Delivered) -> list[Action]:
    """The actions of a batch on the documents of an index, in order."""
    documents = json_objects(batch.selected if delivered.key else batch.messages)
    if not delivered.key:
        # Of another lake a delivery may have the same name, but not the same identity.
        prefix = blake2b(f"{delivered.identity}/{batch.key}".encode(), digest_size=12).hexdigest()
        return [
            Action(position, _lines("index", {"_id": f"{prefix}-{position}"}, document))
            for position, document in enumerate(documents)
        ]
    keys = [json_texts(batch.rows[name]) for name in delivered.key]
    revisions = batch.rows[REVISION].to_pylist()
    changes = batch.rows[CHANGE].to_pylist() if CHANGE in batch.rows.column_names else [None] * len(documents)
    wanted = list[Action]()
    for position, values in enumerate(zip(*keys, strict=True)):
        about = {
            "_id": _id_of(values),
            "version": _FIRST_VERSION + revisions[position],
            "version_type": "external_gte",
        }
        is_delete = changes[position] == DELETE
        wanted.append(
            Action(position, _lines("delete", about) if is_delete else _lines("index", about, documents[position]))
        )
    return wanted


def _id_of(values: Sequence[str | None]) -> str:
    # The zeros of a float are one value, and null is none of the texts.
    text = f"[{','.join({None: 'null', '-0.0': '0.0'}.get(value, value or '') for value in values)}]"
    content = text.encode()
    return text if len(content) <= _LONGEST_ID else blake2b(content, digest_size=32).hexdigest()


def _lines(operation: str, about: Mapping[str, Any], document: bytes | None = None) -> bytes:
    told = json.dumps({operation: about}, ensure_ascii=False).encode() + b"\n"
    return told if document is None else told + document + b"\n"


@dataclass(frozen=True)
class _Outcome:
    """The outcome of one action; `kind` and `reason` are empty where it was done."""

    status: int
    kind: str
    reason: str
    text: str

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> _Outcome:
        ((_, told),) = item.items()
        status, error = int(told["status"]), told.get("error") or {}
        kind, reason = str(error.get("type") or ""), str(error.get("reason") or "")
        cause = (error.get("caused_by") or {}).get("reason")
        text = " ".join(f"{status} {kind}: {reason}{f' ({cause})' if cause else ''}"[:_TOLD].split())
        return cls(status, kind, reason, text)

    @property
    def is_there(self) -> bool:
        """True if the row is there, or something newer is."""
        return self.status in (_TAKEN, _CREATED, _CONFLICT) or (self.status == _MISSING and not self.kind)

    def is_about_row(self, is_of_all: bool) -> bool:
        """True if the row is to blame; `is_of_all`: all rows of the request, several, were answered so."""
        if self.status != _BAD or self.kind != _ABOUT_EITHER:
            return self.status == _BAD and self.kind in _ABOUT_ROWS
        if any(words in self.reason for words in _ABOUT_INDEX):
            return False
        return _ABOUT_ONE_ROW in self.reason or not is_of_all


def refusals(items: Sequence[Mapping[str, Any]], address: str) -> list[str | None]:
    """Why rows are refused, of the answers to the actions of a request; None of what is there, or something newer is.

    Raises:
        SinkError: it is not a row that is to blame; or these are no such answers.
    """
    try:
        outcomes = [_Outcome.of(item) for item in items]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _no_answer(address, str(items)) from error
    is_of_all = len(outcomes) > 1 and len({outcome.text for outcome in outcomes}) == 1
    for outcome in outcomes:
        if not outcome.is_there and not outcome.is_about_row(is_of_all):
            raise SinkError(
                f"{address} does not take rows now: {outcome.text}. The batch is sent again.", address=address
            )
    return [None if outcome.is_there else outcome.text for outcome in outcomes]


def _no_answer(address: str, told: str) -> SinkError:
    return SinkError(
        f"{address} gives an answer that is none of OpenSearch ({' '.join(told[:_TOLD].split())}); correct the url, or "
        "what is in between. The batch is sent again.",
        address=address,
    )


class _OpenSearchSink(Sink):
    """Remembers nothing: ids and versions tell what is there already."""

    def __init__(self, client: httpx.Client, address: str, index: str, delivered: Delivered) -> None:
        self._client = client
        self._address = address
        self._index = index
        self._delivered = delivered

    def delivered_through(self, generation: int) -> None:
        return None

    def deliver(self, batch: NumberedBatch, put_aside: PutAside) -> None:
        self._check_is_one_index()
        put_aside([refused for part in _parts(actions(batch, self._delivered)) for refused in self._send(part)])

    def count(self) -> int:
        """The documents of the index, whoever wrote them."""
        self._ask("POST", f"/{self._index}/_refresh", also=(_MISSING,))
        answer = self._ask("GET", f"/{self._index}/_count", also=(_MISSING,))
        return 0 if answer.status_code == _MISSING else self._field(answer, "count", int)

    def close(self) -> None:
        self._client.close()

    def _send(self, wanted: Sequence[Action]) -> Iterator[RefusedRow]:
        """Give the rows that are refused; a request that is too large is halved until one row is alone."""
        body = b"".join(action.lines for action in wanted)
        answer = self._ask("POST", f"/{self._index}/_bulk", body, also=(_TOO_LARGE,))
        if answer.status_code != _TOO_LARGE:
            items = self._field(answer, "items", list)
            if len(items) != len(wanted):
                raise _no_answer(self._address, _told(answer))
            for action, reason in zip(wanted, refusals(items, self._address), strict=True):
                if reason is not None:
                    yield RefusedRow(action.position, reason)
        elif len(wanted) == 1:
            yield RefusedRow(wanted[0].position, _told(answer))
        else:
            half = len(wanted) // 2
            yield from self._send(wanted[:half])
            yield from self._send(wanted[half:])

    def _check_is_one_index(self) -> None:
        """Refuse a name of several indices: an id is unique within one, so a row that comes again would be there twice.

        An alias may roll over between two batches. Who has no right to ask is not asked.
        """
        only = "filter_path=*.data_stream,*.settings.index.provided_name"
        answer = self._ask("GET", f"/{self._index}?{only}", also=(_MISSING, _FORBIDDEN))
        if not answer.is_success:
            return
        indices = self._json(answer)
        if not isinstance(indices, dict) or not all(isinstance(each, dict) for each in indices.values()):
            raise _no_answer(self._address, _told(answer))
        if len(indices) > 1 or any("data_stream" in each for each in indices.values()):
            raise SinkError(
                f"{self._address} is a data stream, or an alias of several indices ({', '.join(sorted(indices))}), "
                "where a row that comes again would be there twice; deliver to one index.",
                address=self._address,
            )

    def _json(self, answer: httpx.Response) -> Any:
        try:
            return answer.json()
        except ValueError as error:
            raise _no_answer(self._address, _told(answer)) from error

    def _field(self, answer: httpx.Response, name: str, kind: type[_T]) -> _T:
        told = self._json(answer)
        value = told.get(name) if isinstance(told, dict) else None
        if not isinstance(value, kind):
            raise _no_answer(self._address, _told(answer))
        return value

    def _ask(self, method: str, path: str, body: bytes | None = None, also: Sequence[int] = ()) -> httpx.Response:
        try:
            answer = self._client.request(
                method, path, content=body, headers={"Content-Type": "application/x-ndjson"} if body else None
            )
        except httpx.HTTPError as error:
            raise SinkError(
                f"{self._address} is away: {type(error).__name__}: {error or 'no answer in time'}.",
                address=self._address,
            ) from error
        if not answer.is_success and answer.status_code not in also:
            raise SinkError(
                f"{self._address} answers {_told(answer)}. The batch is sent again.",
                address=self._address,
                value=answer.status_code,
                retry_after=retry_after(answer.headers),
            )
        return answer


def _parts(wanted: Sequence[Action]) -> Iterator[Sequence[Action]]:
    """Actions that follow one another, in requests of about `_REQUEST_BYTES`."""
    part, size = list[Action](), 0
    for action in wanted:
        if part and size + len(action.lines) > _REQUEST_BYTES:
            yield part
            part, size = [], 0
        part.append(action)
        size += len(action.lines)
    if part:
        yield part


def _told(answer: httpx.Response) -> str:
    text = " ".join(answer.text[:_TOLD].split())
    return f"{answer.status_code} {answer.reason_phrase}" + (f": {text}" if text else "")

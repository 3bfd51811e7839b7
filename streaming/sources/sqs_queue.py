"""Queues of SQS, or of what speaks like it, into which a store writes a message for each object that was put."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import unquote_plus, urlsplit

from streaming.base import SourceError, check_url, interval, needs
from streaming.tables import s3

_REGION = re.compile(r"^(?:sqs\.([a-z0-9-]+)|([a-z0-9-]+)\.queue)\.amazonaws\.")
_AT_ONCE = 10
"""The most messages that a request of SQS takes or gives."""
_WAITS = 1
"""Seconds that the queue waits for a message: with any wait, it asks all of its servers."""
_CREATED = ("ObjectCreated:", "ObjectRestore:Completed")


@dataclass(frozen=True)
class SqsQueue:
    """A queue of SQS, or of what speaks like it, with an event of S3 for each object of a landing folder.

    A source `Files(..., notified_by=SqsQueue(url))` finds files by these messages. It lists its folder at first, and
    again once `listed_every` has passed, which finds what no message has named. A message is deleted once the batch
    that has its file is in the log: let the visibility timeout of the queue be longer than all that waits takes to be
    read. Each stream needs a queue of its own, as messages are deleted.

    Events come as S3 sends them to a queue, also by a topic of SNS. Those of other kinds, and of objects that the
    source does not read, are deleted. What is no event of S3, or of another bucket, stays in the queue and is told of:
    perhaps the queue is somebody else's.

    `url` has the address of the queue's server. Region and credentials are found in the environment, as those of a
    [lake on an object store](../object-store.md).

    Raises:
        DeclarationError: the URL or the interval cannot be.
    """

    url: str
    listed_every: str = "1 hour"

    def __post_init__(self) -> None:
        found = "credentials are found in the environment"
        check_url("SqsQueue", self.url, "https://sqs.region.amazonaws.com/account/queue", instead=found)
        interval(self.listed_every)
        needs("boto3", f"the queue {self.url}", extra="s3")


@dataclass(frozen=True)
class Message:
    """A message: its id, what it has to be deleted by, and its text."""

    id: str
    handle: str
    body: str


@dataclass(frozen=True)
class StoredObject:
    """The name of an object of a store."""

    bucket: str
    key: str


def objects_put(body: str) -> list[StoredObject] | None:
    """The objects that an event of S3 says were put, none if it is of another kind; None for what is no such event."""
    try:
        event = json.loads(body)
        if event.get("Type") == "Notification":
            event = json.loads(event["Message"])
        if event.get("Event") == "s3:TestEvent":
            return []
        return [
            StoredObject(record["s3"]["bucket"]["name"], unquote_plus(record["s3"]["object"]["key"]))
            for record in event["Records"]
            if record["eventName"].removeprefix("s3:").startswith(_CREATED)
        ]
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


class SqsClient:
    """Takes messages from a queue and deletes them."""

    def __init__(self, queue: SqsQueue) -> None:
        import boto3
        from botocore.config import Config

        parts = urlsplit(queue.url)
        named = _REGION.match(parts.netloc)
        self._url = queue.url
        self._client: Any = boto3.client(
            "sqs",
            endpoint_url=f"{parts.scheme}://{parts.netloc}",
            region_name=(named[1] or named[2]) if named else s3.region(),
            config=Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "max_attempts": 5}),
        )

    def receive(self) -> list[Message]:
        """Some messages that nobody has taken; none where there is none.

        Raises:
            SourceError: the queue does not answer.
        """
        with self._asking():
            answer = self._client.receive_message(
                QueueUrl=self._url, MaxNumberOfMessages=_AT_ONCE, WaitTimeSeconds=_WAITS
            )
        return [Message(each["MessageId"], each["ReceiptHandle"], each["Body"]) for each in answer.get("Messages", ())]

    def delete(self, handles: Sequence[str]) -> None:
        """Delete messages; one that cannot be deleted any more comes again.

        Raises:
            SourceError: the queue does not answer.
        """
        for start in range(0, len(handles), _AT_ONCE):
            entries = [
                {"Id": str(place), "ReceiptHandle": handle}
                for place, handle in enumerate(handles[start : start + _AT_ONCE])
            ]
            with self._asking():
                self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)

    def count(self) -> int:
        """The messages that are not deleted, about.

        Raises:
            SourceError: the queue does not answer.
        """
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        with self._asking():
            answer = self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=names)
        return sum(int(answer["Attributes"][name]) for name in names)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise SourceError(
                f"the queue {self._url} does not answer ({error}): check that it is there, that AWS_REGION and "
                "credentials are right, and that these may receive and delete messages and read the queue's "
                "attributes. Nothing is lost: files are found once it answers."
            ) from error


@cache
def client_of(queue: SqsQueue) -> SqsClient:
    """The client of a queue, which all threads share."""
    return SqsClient(queue)

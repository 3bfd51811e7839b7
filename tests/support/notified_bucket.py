"""A queue of SQS into which a store writes a message for each object, as others see both."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import boto3

from tests.support.object_store import Bucket, new_bucket

CREDENTIALS = {"aws_access_key_id": "AKIA-OF-OTHERS", "aws_secret_access_key": "others", "region_name": "us-east-1"}
_ACCOUNT = "123456789012"


@dataclass
class NotifiedBucket:
    """A bucket whose objects are told to a queue; a message that is received is there for all again after `hidden`."""

    bucket: Bucket
    url: str

    def put(self, key: str, content: bytes, *, told: bool = True) -> None:
        """Put an object; one that is not `told` is one whose message is lost."""
        if told:
            self._tell("s3:ObjectCreated:*", "s3:ObjectRemoved:*")
        else:
            self._tell()
        self.bucket.put(key, content, "")

    def delete(self, key: str) -> None:
        """Delete an object, which is told, too."""
        self.bucket._client.delete_object(Bucket=self.bucket.name, Key=key)

    def send(self, *bodies: Any) -> None:
        """Send messages, JSON but for those that are texts."""
        for body in bodies:
            text = body if isinstance(body, str) else json.dumps(body)
            self.queue.send_message(QueueUrl=self.url, MessageBody=text)

    def created(self, key: str, bucket: str | None = None) -> dict[str, Any]:
        """The event of an object that was put, by its key as it stands in the event."""
        place = {"bucket": {"name": bucket or self.bucket.name}, "object": {"key": key, "size": 1}}
        return {"Records": [{"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "s3": place}]}

    @property
    def messages(self) -> int:
        """The messages that nobody has deleted."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self.queue.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)
        return sum(int(answer["Attributes"][name]) for name in names)

    @property
    def queue(self) -> Any:
        """A client of the queue."""
        return boto3.client("sqs", endpoint_url=self.bucket.endpoint, **CREDENTIALS)

    def _tell(self, *events: str) -> None:
        arn = f"arn:aws:sqs:us-east-1:{_ACCOUNT}:{self.url.rpartition('/')[2]}"
        told = {"QueueConfigurations": [{"QueueArn": arn, "Events": [*events]}]} if events else {}
        self.bucket._client.put_bucket_notification_configuration(
            Bucket=self.bucket.name, NotificationConfiguration=told
        )


def new_notified_bucket(endpoint: str, hidden: int = 600) -> NotifiedBucket:
    """An empty bucket with an empty queue; who receives a message has it alone for `hidden` seconds."""
    bucket = new_bucket(endpoint)
    queue = boto3.client("sqs", endpoint_url=endpoint, **CREDENTIALS)
    created = queue.create_queue(QueueName=bucket.name, Attributes={"VisibilityTimeout": str(hidden)})
    notified = NotifiedBucket(bucket, created["QueueUrl"])
    notified._tell("s3:ObjectCreated:*", "s3:ObjectRemoved:*")
    return notified

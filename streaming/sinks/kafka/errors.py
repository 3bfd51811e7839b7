"""The meaning of errors of Kafka's client: a row is refused, another process delivers, or the target is away."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from streaming.base import FencedError, SinkError
from streaming.kafka import LastError

_OF_A_ROW = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError._UNKNOWN_PARTITION,
)
_OF_ITS_NEIGHBOURS = (KafkaError._INVALID_DIFFERENT_RECORD, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_NO_RIGHT = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


def is_of_a_row(error: KafkaError) -> bool:
    """True if the record itself is refused, and will be whenever it is sent."""
    return error.code() in _OF_A_ROW


def is_of_neighbours(error: KafkaError) -> bool:
    """True if a record was only sent together with one that was refused."""
    return error.code() in _OF_ITS_NEIGHBOURS


def translated(error: KafkaError, address: str, heard: LastError | None = None) -> SinkError | FencedError:
    """The error as a delivery understands it; `heard`: what the client has said of its connections."""
    text = error.str() if heard is None else f"{error.str()}{heard}"
    if error.code() in _FENCED:
        return FencedError(
            f"the transaction in {address} cannot be ended ({text}): another process delivers there, or it was open "
            "for longer than transaction.timeout.ms, so that the brokers ended it. Nothing of it counts. Let one "
            "process run alone; where batches take that long, raise the option, or make batch= smaller."
        )
    if error.code() in _NO_RIGHT:
        advice = (
            "Give the user the rights to write to the topic and to read, write and create that of the progress, and to "
            "use transactional ids that begin with 'tidemark-'"
        )
    elif error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        advice = "Lower transaction.timeout.ms, or raise transaction.max.timeout.ms of the brokers (15 minutes)"
    elif error.code() == KafkaError._INVALID_ARG:
        advice = "Correct the options of KafkaTopic"
    elif heard is not None and heard.advice:
        advice = heard.advice
    else:
        advice = "Start the brokers, or correct servers and options of KafkaTopic"
    return SinkError(f"{address} is away: {text}. {advice}; the batch is sent again by itself.")


def cause_of(error: KafkaException) -> KafkaError:
    """The error that the exception is about."""
    cause: KafkaError = error.args[0]
    return cause

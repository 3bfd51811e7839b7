"""Options of Kafka's clients: declared once, in the names of librdkafka, for those that read and those that write."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streaming.base import DeclarationError, FrozenMapping, SourceError, check_mapping, check_type, filled

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_ADVICE = {
    "_SSL": "Name the PEM file of who signed the brokers' certificate in ssl.ca.location",
    "_AUTHENTICATION": "Correct sasl.username, sasl.password and sasl.mechanism",
}
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_SERVER = re.compile(r"\S+:[0-9]+")
ISOLATION = "isolation.level"
_SECRETS = ("password", "secret", "jaas", ".pem", "token")
_OURS = {
    "bootstrap.servers": "servers",
    "transactional.id": "nothing: it follows from the delivery",
    "enable.idempotence": "nothing: a batch that is sent again must not come twice",
    "acks": "nothing: all replicas in sync have to have a row",
    "partitioner": "nothing: a key goes where the clients of Java send it, unless partition= says where",
    "group.id": "start=CommittedOffsets(group)",
    "auto.offset.reset": "start",
    "enable.auto.commit": "nothing: the log says how far the stream is",
}
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_SHARED = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "client.id",
    "client.rack",
)
_LIMITS_OF_LIBRDKAFKA = {
    "max.partition.fetch.bytes": (1, 1_000_000_000),
    "fetch.max.bytes": (0, 2**31 - 513),
    "fetch.min.bytes": (1, 100_000_000),
}
_OF_THE_READER_ALONE = (*_LIMITS_OF_LIBRDKAFKA, "request.timeout.ms")
READER = (*_SHARED, *_OF_THE_READER_ALONE, ISOLATION)
"""The options that a source may be given."""
WRITER = (
    *_SHARED,
    "batch.size",
    "compression.level",
    "compression.type",
    "linger.ms",
    "message.max.bytes",
    "message.timeout.ms",
    "request.timeout.ms",
    "transaction.timeout.ms",
)
"""The options that a target may be given."""
_CONTENT_OF = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}
"""The options of librdkafka that take the content of a file instead of its place."""


class LastError:
    """The last word of a client that says why; it is the client's `error_cb`, and is told when the client is polled."""

    def __init__(self) -> None:
        self._text = ""
        self.advice = ""
        """The action to take, as the beginning of a sentence; empty where the word does not say."""

    def __call__(self, error: KafkaError) -> None:
        name = error.name()
        # A broker closes the connection it refused, and then none is left: both say less than why it refused.
        if name in _ADVICE or (name != "_ALL_BROKERS_DOWN" and not self.advice):
            self._text, self.advice = error.str(), _ADVICE.get(name, "")

    def __str__(self) -> str:
        return f", the last word was: {self._text}" if self._text else ""


def check_servers(what: str, servers: str) -> None:
    """Refuse what is not hosts and ports with commas between them.

    Raises:
        DeclarationError: with what to write.
    """
    check_type(f"servers of {what}", servers, str, "host and port, such as 'localhost:9092'")
    if not all(_SERVER.fullmatch(server.strip()) for server in servers.split(",")):
        raise DeclarationError(
            f"servers={servers!r} are no hosts and ports",
            "write them as 'localhost:9092'.",
            field="servers",
            value=servers,
        )


def can_name_a_topic(name: str) -> bool:
    """True if brokers take the name for a topic."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


class ClientOptions(FrozenMapping[str, str]):
    """Options by name; whoever prints them sees no secret."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return ClientOptions, (dict(self),)

    def __repr__(self) -> str:
        return repr({name: "***" if _is_secret(name) else value for name, value in self.items()})


def _is_secret(name: str) -> bool:
    return any(part in name for part in _SECRETS)


def client_options(given: Mapping[str, str], names: Sequence[str] = READER) -> ClientOptions:
    """The options, checked against the `names` that there are; they are nowhere quoted with their values.

    Raises:
        DeclarationError: a name is unknown or not the user's, or what goes together is not all there.
    """
    check_mapping("options of Kafka", dict.fromkeys(given, ""), str, "a dict from name to text")
    options = ClientOptions(given)
    for name, value in options.items():
        if not isinstance(value, str):
            raise DeclarationError(f"option {name!r} of Kafka is a {type(value).__name__}", "write it as text.")
        if name in _OURS:
            raise DeclarationError(f"option {name!r} of Kafka is declared by {_OURS[name]}", "leave it out.")
        if name not in names:
            raise DeclarationError(
                f"option {name!r} of Kafka is not known; options are those of librdkafka: {', '.join(names)}."
            )
    _check_together(options)
    return options


def _check_together(options: ClientOptions) -> None:
    protocol, mechanism = options.get("security.protocol", "PLAINTEXT").upper(), options.get("sasl.mechanism", "")
    if protocol.startswith("SASL") != bool(mechanism) or (mechanism and mechanism not in _MODULES):
        raise DeclarationError(
            f"security.protocol={protocol!r} and sasl.mechanism={mechanism!r} of Kafka do not go together; with "
            f"SASL_SSL or SASL_PLAINTEXT a mechanism is one of {', '.join(_MODULES)}, otherwise leave it out.",
            field="security.protocol",
            value=protocol,
            choices=tuple(_MODULES),
        )
    if mechanism and not ("sasl.username" in options and "sasl.password" in options):
        raise DeclarationError(
            f"sasl.mechanism={mechanism!r} of Kafka needs sasl.username and sasl.password",
            "name a variable of the environment, such as '${KAFKA_PASSWORD}', and the declaration holds no secret.",
            field="sasl.mechanism",
            value=mechanism,
        )
    if ("ssl.certificate.location" in options) != ("ssl.key.location" in options):
        raise DeclarationError("ssl.certificate.location and ssl.key.location of Kafka go together", "name both.")
    if options.get(ISOLATION, "read_committed") not in ("read_committed", "read_uncommitted"):
        raise DeclarationError(
            f"{ISOLATION}={options[ISOLATION]!r} of Kafka is unknown",
            "write read_committed or read_uncommitted.",
            field=ISOLATION,
            value=options[ISOLATION],
        )


def reads_committed(options: ClientOptions) -> bool:
    """True if rows of transactions that were aborted, or are open, are left out; they are unless declared otherwise."""
    return options.get(ISOLATION) != "read_uncommitted"


def left_to_java(options: Mapping[str, str]) -> str:
    """The reason for which only Java's client can read with these options; empty where librdkafka's can, too."""
    for name in _OF_THE_READER_ALONE:
        value = options.get(name)
        if value is None:
            continue
        if name not in _LIMITS_OF_LIBRDKAFKA:
            return f"{name} is an option of Java's client alone"
        least, most = _LIMITS_OF_LIBRDKAFKA[name]
        if not value.isdecimal() or not least <= int(value) <= most:
            return f"{name}={value} is no value from {least:,} to {most:,}, which Java's client alone takes"
    return ""


def for_librdkafka(servers: str, options: Mapping[str, str]) -> dict[str, Any]:
    """The options of a client that asks for offsets and topics.

    Raises:
        SourceError: a variable of the environment is not set.
    """
    own = {name: value for name, value in _expanded(options).items() if name in (*_SHARED, ISOLATION)}
    return own | _of_every_client(servers)


def for_tasks(servers: str, options: Mapping[str, str]) -> dict[str, Any]:
    """The options of a client that reads in Spark's tasks, which have neither environment nor files of this process.

    Those that `left_to_java` names are left out.

    Raises:
        SourceError: a variable of the environment is not set, or a file cannot be read.
    """
    own = for_librdkafka(servers, options)
    content = {pem: _content(own, name) for name, pem in _CONTENT_OF.items() if name in own}
    fetched = {name: options[name] for name in _LIMITS_OF_LIBRDKAFKA if name in options and not left_to_java(options)}
    return {name: value for name, value in own.items() if name not in _CONTENT_OF} | content | fetched


def for_producer(servers: str, options: Mapping[str, str]) -> dict[str, Any]:
    """The options of the client that writes.

    Raises:
        SourceError: a variable of the environment is not set.
    """
    return _expanded(options) | _of_every_client(servers)


def _of_every_client(servers: str) -> dict[str, Any]:
    # It writes what it thinks of a connection to the standard error otherwise.
    return {"bootstrap.servers": servers, "log_level": 0}


def for_spark(servers: str, options: ClientOptions) -> dict[str, str]:
    """The options of Spark's reader, whose client is Java's.

    Raises:
        SourceError: a variable of the environment is not set, or a file cannot be read.
    """
    given = _expanded(options)
    java = {name: value for name, value in given.items() if name in _OF_THE_READER_ALONE or name.startswith("client.")}
    java |= {"bootstrap.servers": servers, ISOLATION: given.get(ISOLATION, "read_committed")}
    if "security.protocol" in given:
        java["security.protocol"] = given["security.protocol"].upper()
    if "ssl.endpoint.identification.algorithm" in given:
        algorithm = given["ssl.endpoint.identification.algorithm"]
        java["ssl.endpoint.identification.algorithm"] = "" if algorithm == "none" else algorithm
    if "sasl.mechanism" in given:
        mechanism = given["sasl.mechanism"]
        user, password = (_quoted(given[name]) for name in ("sasl.username", "sasl.password"))
        java["sasl.mechanism"] = mechanism
        java["sasl.jaas.config"] = f"{_MODULES[mechanism]} required username={user} password={password};"
    if "ssl.ca.location" in given:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _content(given, "ssl.ca.location")}
    if "ssl.certificate.location" in given:
        java |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _content(given, "ssl.certificate.location"),
            "ssl.keystore.key": _content(given, "ssl.key.location"),
        }
    if "ssl.key.password" in given:
        java["ssl.key.password"] = given["ssl.key.password"]
    return {f"kafka.{name}": value for name, value in java.items()}


def _expanded(options: Mapping[str, str]) -> dict[str, str]:
    return filled(options, "Kafka", SourceError)


def _content(given: Mapping[str, str], name: str) -> str:
    try:
        return Path(given[name]).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(
            f"{name}={given[name]!r} of Kafka cannot be read ({error})",
            "name a PEM file.",
            field=name,
            value=given[name],
        ) from error


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

from confluent_kafka import KafkaError

from streaming.kafka import LastError


def _told(*words: tuple[int, str]) -> LastError:
    heard = LastError()
    for code, text in words:
        heard(KafkaError(code, text))
    return heard


def test_last_word_is_the_one_that_is_quoted() -> None:
    heard = _told((KafkaError._RESOLVE, "no such host"), (KafkaError._TRANSPORT, "connection refused"))
    assert str(heard) == ", the last word was: connection refused"
    assert not heard.advice


def test_that_no_broker_is_left_does_not_replace_why() -> None:
    heard = _told((KafkaError._TRANSPORT, "connection refused"), (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert str(heard) == ", the last word was: connection refused"


def test_word_that_names_what_to_do_outlasts_the_closed_connections_after_it() -> None:
    heard = _told(
        (KafkaError._AUTHENTICATION, "SASL authentication failed"),
        (KafkaError._TRANSPORT, "disconnected while connecting"),
    )
    assert "SASL authentication failed" in str(heard)
    assert "sasl.password" in heard.advice


def test_later_word_that_names_what_to_do_replaces_the_earlier_one() -> None:
    heard = _told(
        (KafkaError._SSL, "certificate verify failed"), (KafkaError._AUTHENTICATION, "SASL authentication failed")
    )
    assert "SASL authentication failed" in str(heard)
    assert "sasl.password" in heard.advice

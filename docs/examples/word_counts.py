"""Words and hashtags of texts, counted as they come: a chain of two applications, the second keyed by the token."""

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Selected, Side, Stream, Table, Text, rolling

texts = Stream(
    name="texts",
    description="One row per line, at the time at which it was read; a TcpSocket receiver may land them.",
    source=Files("landing/texts"),
    format=Text("text"),
    derived={"read_at": "_ingested_at"},
    event_time="read_at",
    clock=BoundedOutOfOrderness("0 seconds"),
)

tokens = Selected(
    name="tokens",
    description="A row per word of ASCII letters, digits and underscores, in lower case; beside them the hashtags.",
    of=texts,
    explode={"token": r"filter(split(lower(text), '[^a-z0-9_]+'), word -> word <> '')"},
    select=("token",),
    sides={"hashtags": Side(explode={"token": r"regexp_extract_all(lower(text), '#(\\w+)')"}, select=("token",))},
)
splitting = Pipeline(stream=texts, views=(tokens,))


def _tokens(name: str, side: str) -> Stream:
    return Stream(
        name=name,
        source=Table(tokens, side=side),
        format=Json("token string not null"),
        derived={"at": "_origin.at"},
        event_time="at",
        clock=BoundedOutOfOrderness("0 seconds"),
    )


word_counts = rolling("word_counts", _tokens("words_of_texts", ""), {"seen": "count(*)"}, by=("token",))
tag_counts = rolling("tag_counts", _tokens("tags_of_texts", "hashtags"), {"seen": "count(*)"}, by=("token",))
pipeline = Pipeline(
    name="token_counts", streams=(*word_counts.reads, *tag_counts.reads), operators=(word_counts, tag_counts)
)

"""Scores by a model that is replaced while readings come; each says which version has made it."""

from typing import Any

from streaming import BoundedOutOfOrderness, Files, Json, Key, Keyed, Pinned, Pipeline, Stream

models = Stream(
    name="models",
    description="One row per version of a model; a version that is not newer changes nothing.",
    source=Files("landing/models"),
    format=Json("model string not null, at timestamp not null, slope double not null, version int not null"),
    event_time="at",
    clock=BoundedOutOfOrderness("0 seconds"),
)
scored = Stream(
    name="scored",
    source=Files("landing/scored"),
    format=Json("id string not null, at timestamp not null, heat double not null"),
    event_time="at",
    clock=BoundedOutOfOrderness("1 second"),
)


def score(key: Key, row: Any) -> None:
    """The model is the one that was there when the batch of the row was read, also in a replay."""
    model = key.rules.get(("heat",))
    if model is not None:
        key.emit(score=model.slope * row.heat, version=model.version)


rules = Pinned(models, by=("model",), version="version")
scores = Keyed("scores", scored, ("id",), "", "score double, version int", score, rules=rules)
pipeline = Pipeline(name="scores", streams=(scored, models), operators=(scores,))

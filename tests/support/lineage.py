"""Events of OpenLineage as a test takes them: validated against its schemas, those of facets too, then looked at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

SCHEMAS = Path(__file__).parent / "openlineage"


@cache
def _schemas() -> tuple[Registry[Any], dict[str, str]]:
    """The schemas by their ids, and the reference to that of each facet by the facet's name in an event."""
    registry: Registry[Any] = Registry()
    facets = {}
    for file in SCHEMAS.rglob("*.json"):
        schema = json.loads(file.read_text())
        registry = registry.with_resource(schema["$id"], Resource.from_contents(schema))
        facets |= {name: f"{schema['$id']}#/properties/{name}" for name in schema.get("properties", {})}
    return registry, facets


def _validator(reference: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": reference}, registry=_schemas()[0], format_checker=FormatChecker())


def validate(event: dict[str, Any]) -> None:
    """Raise if the event, or a facet in it, is not what OpenLineage says; an unknown facet is refused, too."""
    _validator("https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent").validate(event)
    for name, facet in _facets_in(event):
        _validator(_schemas()[1][name]).validate(facet)


def _facets_in(event: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for part in (event["run"], event["job"], *event["inputs"], *event["outputs"]):
        for place in ("facets", "inputFacets", "outputFacets"):
            yield from part.get(place, {}).items()


@dataclass(frozen=True)
class Told:
    """The events of one test, each validated, in the order in which they were sent."""

    events: list[dict[str, Any]]

    @classmethod
    def of(cls, events: list[dict[str, Any]]) -> Told:
        """The events, once all of them are what the schemas say."""
        for event in events:
            validate(event)
        return cls(events)

    @classmethod
    def in_file(cls, file: Path) -> Told:
        """The events that a file has, one a line; none where there is no file yet."""
        return cls.of([json.loads(line) for line in file.read_text().splitlines()] if file.exists() else [])

    def kinds(self, job: str) -> list[str]:
        """The types of the events of a job."""
        return [event["eventType"] for event in self.events if event["job"]["name"] == job]

    def last(self, job: str) -> dict[str, Any]:
        """The newest event of a job."""
        return [event for event in self.events if event["job"]["name"] == job][-1]

    def output(self, job: str, name: str) -> dict[str, Any]:
        """The dataset that the newest event of a job has written, by the end of its name."""
        (dataset,) = [each for each in self.last(job)["outputs"] if each["name"].endswith(name)]
        return dict(dataset)


def computed_from(dataset: dict[str, Any], column: str) -> set[tuple[str, str]]:
    """The columns from which one of a dataset is computed, each with the last part of its dataset's name."""
    fields = dataset["facets"]["columnLineage"]["fields"][column]["inputFields"]
    return {(field["name"].rpartition("/")[2], field["field"]) for field in fields}

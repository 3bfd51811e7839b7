"""Events of OpenLineage as a test takes them: validated against its schemas, those of facets too, then looked at."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

from streaming.service.lineage import PRODUCER

SCHEMAS = Path(__file__).parent / "openlineage"


def to_file(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """The file to which all events go from now on, as OpenLineage's own variables say, and nowhere else."""
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        patch.delenv(name)
    file = folder / "events.jsonl"
    for name, value in {"TYPE": "file", "LOG_FILE_PATH": str(file), "APPEND": "true"}.items():
        patch.setenv(f"OPENLINEAGE__TRANSPORT__{name}", value)
    return file


@cache
def _schemas() -> tuple[Registry[Any], dict[str, str]]:
    """The schemas by their ids, and the reference to that of each facet by the facet's name in an event."""
    registry: Registry[Any] = Registry()
    facets: dict[str, str] = {}
    for file in SCHEMAS.rglob("*.json"):
        schema = json.loads(file.read_text())
        registry = registry.with_resource(schema["$id"], Resource.from_contents(schema))
        facets |= {name: f"{schema['$id']}#/properties/{name}" for name in schema.get("properties", {})}
    return registry, facets


def _validator(reference: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": reference}, registry=_schemas()[0], format_checker=FormatChecker())


def validate(event: dict[str, Any]) -> None:
    """Raise if the event, or a facet in it, is not what OpenLineage says; of ours an unknown facet is refused, too."""
    kind = "RunEvent" if "run" in event else "DatasetEvent"
    _validator(f"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/{kind}").validate(event)
    schemas = _schemas()[1]
    for name, facet in _facets_in(event):
        if name in schemas or event["producer"] == PRODUCER:
            _validator(schemas[name]).validate(facet)


def _facets_in(event: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    parts = [event[name] for name in ("run", "job", "dataset") if name in event]
    for part in (*parts, *event.get("inputs", ()), *event.get("outputs", ())):
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
        return [event["eventType"] for event in self._of(job)]

    def last(self, job: str) -> dict[str, Any]:
        """The newest event of a job."""
        return self._of(job)[-1]

    def _of(self, job: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event.get("job", {}).get("name") == job]

    def output(self, job: str, name: str) -> dict[str, Any]:
        """The dataset that the newest event of a job has written, by the end of its name."""
        (dataset,) = [each for each in self.last(job)["outputs"] if each["name"].endswith(name)]
        return dict(dataset)


def computed_from(dataset: dict[str, Any], column: str) -> set[tuple[str, str]]:
    """The columns from which one of a dataset is computed, each with the last part of its dataset's name."""
    fields = dataset["facets"]["columnLineage"]["fields"][column]["inputFields"]
    return {(field["name"].rpartition("/")[2], field["field"]) for field in fields}

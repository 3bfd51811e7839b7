"""Issues of a dlt resource, whose file the environment tells: the newest change of each, a few at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streaming import Ascending, DltPoll, Files, Json, Pipeline, Receiver, Stream, Tumbling, Windowed, agg

ISSUES = "ISSUES"
"""The variable: a file with an issue a line."""


def all_issues() -> Any:
    """What changed since the run before, and as from every API the last of it once more."""
    # Not for every process that looks for a pipeline here.
    import dlt

    @dlt.resource
    def issues(changed: Any = dlt.sources.incremental("changed")) -> Iterator[Any]:  # noqa: B008
        for line in Path(os.environ[ISSUES]).read_text().splitlines():
            issue = json.loads(line)
            if changed.last_value is None or issue["changed"] >= changed.last_value:
                if issue.get("breaks"):
                    raise OSError("the API is down")
                yield issue

    return issues()


lines = Stream(
    name="lines",
    source=Files("landing/lines"),
    format=Json("id string not null, changed bigint"),
    derived={"at": "_ingested_at"},
    event_time="at",
    clock=Ascending(),
)
by_hour = Windowed("issues_by_hour", lines, Tumbling("1 hour"), {"rows": agg.count()})
issues_in = Receiver("lines_in", DltPoll(all_issues, every="20 milliseconds"), into=lines, every="10 milliseconds")

pipeline = Pipeline(lines, (by_hour,), receivers=(issues_in,))

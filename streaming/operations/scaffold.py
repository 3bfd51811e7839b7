"""A new pipeline to start from: a streaming module and a batch module over one declaration, both runnable at once."""

from __future__ import annotations

from pathlib import Path
from string import Template

from streaming.base import DeclarationError, check_name

_STREAM = Template('''"""Pipeline $name: a skeleton that runs as it is; put your own schema, rules and view into it.

Run it with `$command`; the results lie in ./lake, or where TIDEMARK_HOME says.
"""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Lake,
    Pipeline,
    Rule,
    Settings,
    Stream,
    Tumbling,
    Windowed,
    agg,
    drain,
    start_session,
)
from streaming.feeds import LandingWriter
from streaming.views import read_first

SAMPLE = (
    '{"key": "a", "event_time": "2025-01-01T00:10:00Z", "value": 1.0}',
    '{"key": "b", "event_time": "2025-01-01T00:20:00Z", "value": 5.0}',
    '{"key": "a", "event_time": "2025-01-01T00:40:00Z", "value": 2.0}',
    '{"key": "a", "event_time": "2025-01-01T01:30:00Z", "value": 9.0}',
)

$name = Stream(
    name="$name",
    description="What one row is.",
    source=Files("landing/$name"),
    format=Json("key string not null, event_time timestamp not null, value double"),
    event_time="event_time",
    clock=BoundedOutOfOrderness("15 minutes"),
    rules=(Rule("value_present", "value is not null"),),
)

${name}_by_hour = Windowed(
    name="${name}_by_hour",
    description="What one result is.",
    of=$name,
    by=("key",),
    window=Tumbling("1 hour"),
    aggregates={"rows": agg.count(), "mean_value": agg.mean("value")},
)

pipeline = Pipeline(stream=$name, views=(${name}_by_hour,))


def land_sample(lake: Lake) -> None:
    """Put the sample where the source looks; doing it again changes nothing."""
    LandingWriter(Path($name.source.location(lake))).deliver("sample.json", SAMPLE)


def run(spark: SparkSession, lake: Lake) -> DataFrame:
    """Take what has landed through the pipeline, close its windows, and return the first results."""
    drain(spark, lake, pipeline, end_of_input=True)
    return read_first(spark, lake, ${name}_by_hour).select(*${name}_by_hour.columns)


def main() -> None:
    """Run the stream over the sample and show its results."""
    settings = Settings()
    land_sample(settings.lake)
    run(start_session(settings), settings.lake).orderBy("window_start", "key").show(truncate=False)


if __name__ == "__main__":
    main()
''')

_BATCH = Template('''"""Pipeline $name as a batch: the same declaration over everything in the event log, in one read.

Run it with `$command`, after the stream has run. A place to try an aggregate on all the history there is: first
results overlaid with corrections are equal to this.
"""

from pyspark.sql import DataFrame, SparkSession

from $declared_in import ${name}_by_hour, $name
from streaming import Lake, Settings, start_session
from streaming.log import read_log
from streaming.views import aggregate, pairs


def run(spark: SparkSession, lake: Lake) -> DataFrame:
    """The view's results over every valid row, late ones too."""
    every_pair = pairs(read_log(spark, lake, $name), ${name}_by_hour)
    return aggregate(every_pair, ${name}_by_hour).select(*${name}_by_hour.columns)


def main() -> None:
    """Run the batch and show its results."""
    settings = Settings()
    run(start_session(settings), settings.lake).orderBy("window_start", "key").show(truncate=False)


if __name__ == "__main__":
    main()
''')


def write_skeleton(folder: Path, name: str) -> list[Path]:
    """Write `<name>.py`, the declaration and its stream, and `<name>_batch.py` into `folder`; return their paths.

    Below the folder of a package (such as `streaming/pipelines`) the modules import each other by their full names,
    anywhere else as neighbours.

    Raises:
        DeclarationError: the name is not allowed, or one of the files is there already; nothing is written.
    """
    check_name("pipeline", name)
    targets = [folder / f"{name}.py", folder / f"{name}_batch.py"]
    for target in targets:
        if target.exists():
            raise DeclarationError(
                f"{str(target)!r} exists already and is left as it is; choose another name than {name!r}, or move "
                "the file away."
            )
    folder.mkdir(parents=True, exist_ok=True)
    package = _package(folder)
    for target, template in zip(targets, (_STREAM, _BATCH), strict=True):
        command = f"python -m {package}.{target.stem}" if package else f"python {target.name}"
        declared_in = f"{package}.{name}" if package else name
        target.write_text(template.substitute(name=name, command=command, declared_in=declared_in), encoding="utf-8")
    return targets


def _package(folder: Path) -> str:
    """The dotted name of the package that `folder` is, empty where it is none."""
    parts: list[str] = []
    here = folder.resolve()
    while (here / "__init__.py").is_file():
        parts.insert(0, here.name)
        here = here.parent
    return ".".join(parts)

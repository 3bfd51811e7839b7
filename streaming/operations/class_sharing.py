"""Makes the class archive that `streaming.spark` starts its JVMs with."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from streaming.lake import Settings
from streaming.spark import CLASS_PATH, archive_path, archiving_option, users_lists


def make_class_archive() -> bool:
    """Make the archive where it is missing; returns whether there is one now.

    A Java that cannot make one is no reason to stop: everything works without.
    """
    path = archive_path(users_lists(Settings()).get(CLASS_PATH, ""))
    if path is None:
        return False
    if path.is_file():
        return True
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".archiving-") as scratch:
        made = Path(scratch) / path.name
        training = {
            "TIDEMARK_HOME": f"{scratch}/lake",
            "TIDEMARK_MASTER": "local[2]",
            # Classes of either way into the log.
            "TIDEMARK_INGEST": "both",
            "TIDEMARK_SPARK_spark.driver.extraJavaOptions": archiving_option(made),
        }
        # The JVM writes the archive as its last deed, and holds the pipe open until then.
        subprocess.run(
            [sys.executable, "-c", "from streaming.operations.class_sharing import train; train()"],
            env=os.environ | training,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if made.is_file():
            made.replace(path)
    return path.is_file()


def make_class_archive_later() -> bool:
    """Let another process make the archive where it is missing, with what others leave of the machine; only once.

    Returns whether it was started. Where Java cannot make one, nobody tries again but `tidemark setup`.
    """
    path = archive_path(users_lists(Settings()).get(CLASS_PATH, ""))
    if path is None or path.is_file():
        return False
    try:
        path.with_suffix(".tried").touch(exist_ok=False)
    # Somebody has tried before, or the folder belongs to somebody else.
    except OSError:
        return False
    subprocess.Popen(
        [sys.executable, "-c", "from streaming.operations import make_class_archive; make_class_archive()"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_give_way,
    )
    return True


def _give_way() -> None:
    os.nice(19)


def train() -> None:
    """The way of three rows through a pipeline, which loads the classes that any pipeline does."""
    from streaming.clocks import BoundedOutOfOrderness
    from streaming.declare import Pipeline, Rule, Stream, Windowed, aggregates
    from streaming.formats import Json
    from streaming.service import drain
    from streaming.sources import Files
    from streaming.spark import start_session
    from streaming.windows import Tumbling

    readings = Stream(
        name="readings",
        source=Files("landing/readings"),
        format=Json("id string not null, at timestamp, value double"),
        event_time="at",
        clock=BoundedOutOfOrderness("15 minutes"),
        rules=(Rule("value_present", "value is not null"),),
    )
    means = {"mean": aggregates.mean("value")}
    by_hour = Windowed("by_hour", readings, Tumbling("1 hour"), means, by=("id",))
    # Its results are left to Spark, whose classes are wanted, too: Arrow finds other doubles equal.
    by_value = Windowed("by_value", readings, Tumbling("1 hour"), means, by=("value",))
    lake = Settings().lake
    landing = Path(readings.source.location(lake))
    landing.mkdir(parents=True)
    for hour in (10, 12, 14):
        row = f'{{"id": "a", "at": "2013-01-01T{hour}:00:00Z", "value": {hour}}}\n'
        (landing / f"{hour}.json").write_text(row)
    with start_session() as spark:
        drain(spark, lake, Pipeline(readings, (by_hour, by_value)), end_of_input=True)

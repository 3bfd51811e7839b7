"""`tidemark setup`: fetch ahead of time what the first run would fetch."""

from __future__ import annotations

from platform_assets.cli.context import console
from platform_assets.cli.render import next_step
from streaming.lake import find_project
from streaming.operations import make_class_archive
from streaming.spark import jars_folder, spark_jars


def setup() -> None:
    """Fetch ahead of time what the first run would fetch: the jars.

    Also makes the class archive that lets Spark start faster.
    """
    with console.status("fetching the jars"):
        jars = spark_jars()
    with console.status("making the class archive"):
        make_class_archive()
    for jar in jars:
        console.print(f"{jar}", highlight=False, soft_wrap=True)
    console.print(f"A machine without a network needs a copy of {jars_folder()}: TIDEMARK_JARS says where it lies.")
    if find_project() is None:
        next_step(console, "tidemark init acme", "writes a project of your own.")
    else:
        next_step(console, "tidemark status", "names the pipelines of this project.")

"""Asking streams for a change, and waiting until it has come about."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import uuid4

from platform_assets.cli.context import console, current_lake
from platform_assets.texts.status import drain_line
from streaming.base import SupervisorError, interval, utc_now
from streaming.declare import Pipeline, declared_pipelines, find_pipeline
from streaming.lake import Lake
from streaming.service import Action, Overview, ProcessStatus, look, request

_LOOKS_EVERY, _LINE_EVERY = 0.2, 5.0


def named_pipelines(names: Sequence[str] | None) -> list[Pipeline]:
    """Those of these names, or all that are declared."""
    return [find_pipeline(name) for name in names] if names else list(declared_pipelines().values())


def ask(action: Action, names: Sequence[str] | None) -> list[Pipeline]:
    """Ask those named, or all that run; returns them.

    Raises:
        SupervisorError: there is none that could carry it out.
    """
    lake = current_lake()
    asked = [pipeline for pipeline in named_pipelines(names) if names or look(lake, pipeline).running]
    if not asked:
        raise SupervisorError(
            f"no stream is running in the lake {lake.root!r}; `tidemark up NAME` starts one, or point TIDEMARK_HOME to "
            "the lake where it runs."
        )
    for pipeline in asked:
        request(lake, pipeline, action, uuid4().hex, utc_now())
    return asked


def ends_within(pipelines: Sequence[Pipeline]) -> float:
    """Seconds in which a supervisor has ended each of them, by a kill if need be."""
    return 10 + max(interval(pipeline.stop_within).total_seconds() for pipeline in pipelines)


def wait_for(
    lake: Lake, pipelines: Sequence[Pipeline], reached: Callable[[Overview], bool], doing: str, within: float
) -> list[Overview]:
    """Wait until every pipeline has `reached` what was asked for, say how each is then, and return it.

    Why a stream had to begin anew meanwhile is said at once, as nobody should wait for what needs their help.

    Raises:
        SupervisorError: one has not after `within` seconds.
    """
    deadline = time.monotonic() + within
    reasons: set[str] = set()
    with console.status(f"{doing} {_names(pipelines)} ..."):
        for pipeline in pipelines:
            while not reached(overview := look(lake, pipeline)):
                if overview.why and overview.why not in reasons:
                    reasons.add(overview.why)
                    console.print(f"{pipeline.name} is {overview.state}: {overview.why}")
                if time.monotonic() > deadline:
                    because = f" ({overview.why})" if overview.why else ""
                    goes_on = f" Its supervisor goes on; `tidemark down {pipeline.name}` ends it."
                    raise SupervisorError(
                        f"stream {pipeline.name!r} is {overview.state!r} after {within:.0f} s{because}; `tidemark logs "
                        f"{pipeline.name}` shows all it has said.{goes_on if overview.running else ''}",
                        stream=pipeline.name,
                    )
                time.sleep(_LOOKS_EVERY)
    overviews = [look(lake, pipeline) for pipeline in pipelines]
    for overview in overviews:
        console.print(f"{overview.pipeline.name}: {overview.state}")
    return overviews


def wait_for_drain(lake: Lake, pipelines: Sequence[Pipeline]) -> list[Overview]:
    """Show how far the drain of each is until all have ended, however long that takes; returns how they ended.

    In `process` is what the process of each said last.

    Raises:
        KeyboardInterrupt: Ctrl-C ended the waiting, and nothing else.
    """
    lines_at = time.monotonic()
    last_words: dict[str, ProcessStatus] = {}
    try:
        with console.status(f"draining {_names(pipelines)} ...") as status:
            while running := [
                overview for overview in (look(lake, pipeline) for pipeline in pipelines) if overview.running
            ]:
                last_words |= {overview.pipeline.name: overview.process for overview in running if overview.process}
                text = "\n".join(drain_line(overview, utc_now()) for overview in running)
                status.update(text)
                if not console.is_terminal and time.monotonic() >= lines_at:
                    console.print(text, soft_wrap=True)
                    lines_at = time.monotonic() + _LINE_EVERY
                time.sleep(_LOOKS_EVERY)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"Not waiting any longer: {_names(pipelines)} goes on draining. `tidemark status` shows how far it is, "
            f"`tidemark down {' '.join(pipeline.name for pipeline in pipelines)}` ends it at the next batch."
        ) from None
    return [replace(look(lake, pipeline), process=last_words.get(pipeline.name)) for pipeline in pipelines]


def _names(pipelines: Sequence[Pipeline]) -> str:
    return ", ".join(pipeline.name for pipeline in pipelines)

"""Finds the suites of a pipeline: the generic ones, extended by the pipeline's own module where there is one."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

from quality.errors import SuiteError
from quality.expectations import Suite
from quality.generic import corrections_suite, log_suite, view_suite
from streaming.declare import Pipeline

LOG = "log"


def role_of_corrections(view: str) -> str:
    """The role of the corrections of the view of that name."""
    return f"{view}_corrections"


def role_of_updates(view: str) -> str:
    """The role of the updates of the view of that name."""
    return f"{view}_updates"


def optional_roles(pipeline: Pipeline) -> set[str]:
    """The tables that may be absent, because no row has come late yet."""
    return {
        *(role_of_corrections(view.name) for view in pipeline.corrected),
        *(role_of_updates(view.name) for view in pipeline.updated),
    }


def suites_for(pipeline: Pipeline) -> dict[str, Suite]:
    """The suite of every table of the pipeline by role: `log`, `<view>`, and `<view>_updates` and `<view>_corrections`
    where the view has them.

    A module `quality.suites.<pipeline>` adds to them with a dict `expectations` from role to expectations.

    Raises:
        SuiteError: that module has no such dict, or speaks of a role that there is not.
    """
    suites = {LOG: log_suite(pipeline.stream)}
    for view in pipeline.views:
        suites[view.name] = view_suite(view)
    for view in pipeline.updated:
        suites[role_of_updates(view.name)] = view_suite(view, "_batch")
    for view in pipeline.corrected:
        suites[role_of_corrections(view.name)] = corrections_suite(view)
    module = f"quality.suites.{pipeline.name}"
    if find_spec(module) is None:
        return suites
    own = getattr(importlib.import_module(module), "expectations", None)
    if not isinstance(own, dict):
        raise SuiteError(f"module {module!r} has no dict 'expectations'; give it one from role to expectations.")
    unknown = sorted(set(own) - set(suites))
    if unknown:
        raise SuiteError(
            f"{module!r} has expectations for {', '.join(map(repr, unknown))}; pipeline {pipeline.name!r} has: "
            f"{', '.join(suites)}. Correct the name, or they would never be asked."
        )
    return {role: suite.extended(own.get(role, ())) for role, suite in suites.items()}

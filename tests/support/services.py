"""Services that tests start on this machine, once for all workers, and a test whose service does not start.

`TIDEMARK_REQUIRE_SERVICES=1` makes it fail. Otherwise it is skipped, and the end of pytest's output names each service
that was missed, with the number of tests that did not run for it. This module is a pytest plugin for that.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from streaming.base.errors import FeedError, JarError, JavaError

REQUIRE = "TIDEMARK_REQUIRE_SERVICES"
STARTED = frozenset(("kafka", "postgres_running", "object_store_running", "hive_metastore", "qpid"))
"""The fixtures that start a service."""

_ASKED_FOR = re.compile(r"\b(kafka|postgres|postgres_running|object_store_running|bucket|hive_metastore|qpid): ")
"""An argument by which a test has a service, or a fixture of its file."""

_MISSED = "missed service"
"""The name of the property of a report that says which one."""


class ServiceMissed(pytest.skip.Exception):  # type: ignore[name-defined]
    """A test did not run, because of a service that does not start here."""

    def __init__(self, service: str, reason: object) -> None:
        # Without it pytest counts skips of a fixture together, at a line that nobody looks for.
        super().__init__(f"{service}: {reason}", _use_item_location=True)
        self.service = service


class Scheduling(LoadFileScheduling):
    """Gives workers whole files, and all those that need a service to one worker: so none is started twice."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "services" if _asks(self.config.rootpath / file) else file


@cache
def _asks(file: Path) -> bool:
    # The process that shares out tests has no more of them than their names.
    return _ASKED_FOR.search(file.read_text()) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        asked = STARTED.intersection(getattr(item, "fixturenames", ()))
        if asked and not _asks(item.path):
            raise pytest.UsageError(
                f"{item.nodeid} asks for {', '.join(sorted(asked))} by no argument in its own file, so that workers "
                "would each start one; take the fixture as an argument there"
            )


@contextmanager
def starting(service: str) -> Iterator[None]:
    """Skip the test where what starts within does not, or fail it where services are required.

    `service`: its name, as the summary shows it.
    """
    try:
        yield
    except (JarError, JavaError, FeedError, OSError, ImportError, RuntimeError) as error:
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(f"{service} does not start here, and {REQUIRE}=1 requires it: {error}", pytrace=False)
        raise ServiceMissed(service, f"does not start here: {error}") from error


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell whoever sums up, in another process perhaps, which service was missed."""
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, ServiceMissed):
        report.user_properties.append((_MISSED, call.excinfo.value.service))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was missed, and say how to require it."""
    reports = terminalreporter.stats.get("skipped", [])
    missed = Counter(str(value) for report in reports for name, value in report.user_properties if name == _MISSED)
    if missed:
        terminalreporter.section("MISSING SERVICES: tests did not run", red=True, bold=True)
        for service, tests in missed.most_common():
            terminalreporter.line(f"{service}: {tests} {'test' if tests == 1 else 'tests'} skipped")
        terminalreporter.line(f"The reasons are above. {REQUIRE}=1 makes a test fail whose service does not start.")

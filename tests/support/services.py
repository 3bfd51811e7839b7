"""Services that tests start on this machine, and what becomes of a test whose service does not start.

`TIDEMARK_REQUIRE_SERVICES=1` makes it fail. Otherwise it is skipped, and the end of pytest's output names each service
that was missed, with the number of tests that did not run for it. This module is a pytest plugin for that.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from streaming.base.errors import FeedError, JarError, JavaError

REQUIRE = "TIDEMARK_REQUIRE_SERVICES"
_MISSED = "missed service"
"""The name of the property of a report that says which one."""


class ServiceMissed(pytest.skip.Exception):  # type: ignore[name-defined]
    """A test did not run, because of a service that does not start here."""

    def __init__(self, service: str, reason: object) -> None:
        # Without it pytest counts skips of a fixture together, at a line that nobody looks for.
        super().__init__(f"{service}: {reason}", _use_item_location=True)
        self.service = service


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

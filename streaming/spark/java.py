"""Finds the Java that Spark will use, and says in one sentence what to do when it will not do.

Uses the standard library only and imports nothing of Tidemark before it has something to raise, so that
``python -P streaming/spark/java.py`` works before any package is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

OLDEST_JAVA = 17
"""The oldest major version of Java on which Spark 4.2 starts."""
NEWEST_JAVA = 25
"""The newest one: Spark 4.2.0 names a class of Java's own, `jdk.internal.ref.Cleaner`, that 26 no longer has."""

_SPARK_MODULE = "jdk.incubator.vector"
_ADVICE = (
    'install one with "sudo apt install openjdk-17-jdk-headless" (Debian), '
    '"sudo dnf install java-21-openjdk-devel" (Fedora) or "brew install openjdk@17" (macOS), '
    "and set JAVA_HOME to its folder if it is not the java on the PATH."
)


@dataclass(frozen=True)
class Java:
    """A usable Java: the launcher's path and its major version, such as 17."""

    launcher: Path
    major: int
    has_vectors: bool = True
    """True if it has the module `jdk.incubator.vector`, which Spark's own scripts ask for."""


def require_java() -> Java:
    """Return the Java that Spark will start.

    Raises JavaError, one sentence with the install commands, when there is none or when its version is not one of
    ``OLDEST_JAVA`` to ``NEWEST_JAVA``.
    """
    java = _look_for_java()
    if isinstance(java, Java):
        return java
    from streaming.base import JavaError

    raise JavaError(java)


def major_version(text: str) -> int | None:
    """Return the major version in what ``java -version`` prints (8 for "1.8.0_292"), None without one."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def java_launcher() -> str | None:
    """Return the launcher that Spark's own script would take, without trying it; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    # JAVA_HOME if it is set at all, otherwise the PATH.
    return str(Path(home, "bin", "java")) if home else shutil.which("java")


def java_version() -> str:
    """The version and the place of the Java that Spark will start; nothing is run."""
    launcher = java_launcher()
    return "not found" if launcher is None else f"{released_version(launcher) or 'of an unknown version'} ({launcher})"


def released_version(launcher: str) -> str:
    """The version of a Java, such as 25.0.2, by the file `release` beside it; empty where that does not say."""
    said = Path(launcher).resolve().parents[1] / "release"
    match = re.search(r'^JAVA_VERSION="(.*)"', said.read_text(), re.MULTILINE) if said.is_file() else None
    return match[1] if match else ""


def _look_for_java() -> Java | str:
    """Return the Java, or the sentence that says what is wrong with it."""
    need = f"Tidemark needs Java {OLDEST_JAVA} to {NEWEST_JAVA}"
    home = os.environ.get("JAVA_HOME")
    launcher = java_launcher()
    if launcher is None:
        return f"{need}, and there is no java on the PATH: {_ADVICE}"
    complete, version_text = _run(launcher, "--add-modules", _SPARK_MODULE, "-version")
    if not complete:
        runs, version_text = _run(launcher, "-version")
        if not runs:
            origin = f"JAVA_HOME={home!r}" if home else repr(launcher)
            return f"{need}, and {origin} gives none that runs: {_ADVICE}"
    major = major_version(version_text)
    if major is None:
        return f"{need}, and {launcher!r} does not say which version it is: {_ADVICE}"
    if not OLDEST_JAVA <= major <= NEWEST_JAVA:
        return f"{need}, and {launcher!r} is Java {major}: {_ADVICE}"
    return Java(Path(launcher), major, complete)


def _run(*command: str) -> tuple[bool, str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False, ""
    return done.returncode == 0, done.stderr + done.stdout


if __name__ == "__main__":
    outcome = _look_for_java()
    if isinstance(outcome, str):
        sys.exit(outcome)

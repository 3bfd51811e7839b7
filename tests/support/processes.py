"""The environment of Spark processes that a test starts, and that live for moments."""

from __future__ import annotations

from tidemark.pytest_plugin import HANDFUL, JVM_OPTIONS


def short_lived(java: str = "") -> dict[str, str]:
    """Variables with which such a process spends no time on compiling; `java`: more options of its JVM."""
    settings = {f"TIDEMARK_SPARK_{name}": value for name, value in HANDFUL.items()}
    return {"JAVA_TOOL_OPTIONS": f"{JVM_OPTIONS} {java}".strip(), **settings}

"""GUIDE.md as a script: its files are written, its commands are run in order, and what they print is compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.commands import printed

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    """A block of the guide: the line it begins in, what it is, and its text."""

    line: int
    kind: str
    text: str


def steps(guide: str) -> Iterator[Step]:
    """The blocks in order: `bash` is to be run, `python` to be taken, `text` is what the commands before it print."""
    for block in _BLOCK.finditer(guide):
        yield Step(guide.count("\n", 0, block.start()) + 1, block[1], block[2])


def take(step: Step, folder: Path, environment: dict[str, str]) -> None:
    """Save a block of Python under the name that its first line is, or run it where that is no name."""
    comment = step.text.partition("\n")[0]
    if comment.startswith("# ") and comment.endswith(".py"):
        target = folder / comment.removeprefix("# ")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(step.text, encoding="utf-8")
    else:
        execute(Step(step.line, "bash", f"python - <<'END'\n{step.text}END"), folder, environment)


def execute(step: Step, folder: Path, environment: dict[str, str]) -> tuple[str, Path]:
    """Run the commands of a block in `folder`: what they print, and the folder in which they end."""
    where = Path(environment["DAGSTER_HOME"]) / "folder"
    commands = ["bash", "-euo", "pipefail", "-c", f'{step.text}\npwd > "{where}"']
    return printed(folder, commands, environment), Path(where.read_text().strip())


def missing(expected: str, told: str) -> list[str]:
    """The lines of a block `text` that were not printed in their order, but for white space and rules; `...` is any.

    A line of the guide may be a part of a line that was printed, and the next line another part of it.
    """
    rest = " ".join(told.split())
    absent = []
    for line in (" ".join(line.split()) for line in expected.splitlines()):
        # The rules of tables and `...` say nothing.
        if not any(character.isalnum() for character in line):
            continue
        _, there, after = rest.partition(line)
        if there:
            rest = after
        else:
            absent.append(line)
    return absent

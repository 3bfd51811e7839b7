"""The pages of docs/ as a script: files are written, commands are run in order, and what they print is compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from tests.support.commands import Typist, printed

CHECKOUT = Path(__file__).parents[2]
PAGES = CHECKOUT / "docs"
SITE = CHECKOUT / "mkdocs.yml"
WITH_SERVICES = frozenset(("database.md",))
"""The pages whose commands speak to a broker and a database; each begins where no other page has been."""

_OR_TRUE = " || true"
_TYPED = re.compile(rf"^tidemark [\w ,-]+({re.escape(_OR_TRUE)})?$")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    """A block of a page: where it is, what it is, and its text."""

    page: str
    line: int
    kind: str
    text: str


def pages() -> list[str]:
    """The paths of the pages in `docs`, in the order of the navigation."""
    return list(_listed(yaml.safe_load(SITE.read_text(encoding="utf-8"))["nav"]))


def _listed(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for each in entry.values() if isinstance(entry, dict) else entry:
            yield from _listed(each)


def steps(page_names: Sequence[str]) -> Iterator[Step]:
    """The blocks of pages in order.

    `bash` is to be run, `python` to be taken, `text` is what the commands before it print.
    """
    for page in page_names:
        text = (PAGES / page).read_text(encoding="utf-8")
        for block in _BLOCK.finditer(text):
            yield Step(page, text.count("\n", 0, block.start()) + 1, block[1], block[2])


def follow(
    page_names: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    typist: Typist,
    after_shell: Callable[[], None] = lambda: None,
) -> None:
    """Do what pages say, beginning in `folder`, and compare what is printed with what they say.

    `after_shell` is called each time when commands that the typist does not type have been run.
    """
    output = ""
    snippets: list[Step] = []
    for step in steps(page_names):
        if step.kind == "bash":
            run_each(snippets, folder, environment)
            snippets.clear()
            output, folder = execute(step, folder, environment, typist, after_shell)
        elif step.kind == "text":
            assert missing(step.text, output) == [], f"{step.page}, line {step.line}; printed was:\n{output}"
        elif step.kind == "sql":
            take(step, folder)
        elif step.kind == "python" and not take(step, folder):
            snippets.append(step)
    run_each(snippets, folder, environment)


def take(step: Step, folder: Path) -> bool:
    """Save a block of Python or SQL under the name that its first line is; False where that is no name."""
    comment, _, rest = step.text.partition("\n")
    name = comment.removeprefix("# ").removeprefix("-- ")
    if name == comment or not name.endswith((".py", ".sql")):
        return False
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    # The comments at the head of a query are its description.
    target.write_text(rest if name.endswith(".sql") else step.text, encoding="utf-8")
    return True


def run_each(blocks: Sequence[Step], folder: Path, environment: Mapping[str, str]) -> None:
    """Run blocks of Python as modules in `folder`, in one process; each is called by its page and line."""
    names = [f"{re.sub(r'[^a-z]', '_', block.page.removesuffix('.md'))}_line_{block.line}" for block in blocks]
    for name, block in zip(names, blocks, strict=True):
        (folder / f"{name}.py").write_text(block.text, encoding="utf-8")
    if names:
        printed(folder, ["python", "-c", f"import {', '.join(names)}"], environment)


def execute(
    step: Step,
    folder: Path,
    environment: Mapping[str, str],
    typist: Typist,
    after_shell: Callable[[], None] = lambda: None,
) -> tuple[str, Path]:
    """Run the commands of a block in `folder`: what they print, and the folder in which they end.

    The typist types those of `tidemark` that ask nothing more of the shell than that they may fail; the others, and
    what calls `tidemark` itself, start it as a process of its own.
    """
    outputs = []
    for is_typed, lines in groupby(step.text.splitlines(), lambda line: _TYPED.match(line) is not None):
        if is_typed:
            outputs += [_typed(line, folder, typist) for line in lines]
        else:
            text, folder = _in_a_shell("\n".join(lines), folder, environment)
            outputs.append(text)
            after_shell()
    return "\n".join(outputs), folder


def _typed(line: str, folder: Path, typist: Typist) -> str:
    return typist.type(folder, line.removesuffix(_OR_TRUE), may_fail=line.endswith(_OR_TRUE))


def _in_a_shell(text: str, folder: Path, environment: Mapping[str, str]) -> tuple[str, Path]:
    where = Path(environment["DAGSTER_HOME"]) / "folder"
    commands = ["bash", "-euo", "pipefail", "-c", f'{text}\npwd > "{where}"']
    return printed(folder, commands, environment), Path(where.read_text().strip())


def missing(expected: str, output: str) -> list[str]:
    """The lines of a block `text` that were not printed in their order, but for white space and rules; `...` is any.

    A line of a page may be a part of a line that was printed, and the next line another part of it.
    """
    rest = " ".join(output.split())
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

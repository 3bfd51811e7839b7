"""Types commands of the installed `tidemark` in one process with one session, one after the other.

Most of what a command takes is the start of Python and of Spark, and queries that run for the first time.

A line of stdin is a folder and the words that are typed there, as JSON; the line of stdout that answers it is the exit
code and what was printed. Whatever else writes to stdout, such as Spark's JVM, goes to stderr.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path


def type_(words: Sequence[str]) -> tuple[int, str]:
    """Type a command in the current folder: its exit code, and what it has printed."""
    from platform_assets.cli import main

    printed, code = io.StringIO(), 0
    sys.argv = [*words]
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            main()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
    return code, printed.getvalue()


@contextmanager
def forgotten(folder: Path) -> Iterator[None]:
    """The next command imports the modules of a project anew, which may have been edited, or be of another project."""
    before = [*sys.path]
    try:
        yield
    finally:
        sys.path[:] = before
        for name, module in [*sys.modules.items()]:
            if str(getattr(module, "__file__", None) or "").startswith(f"{folder}/"):
                del sys.modules[name]
        importlib.invalidate_caches()


def serve() -> None:
    """Type whatever is asked for, until nothing more can be."""
    from streaming import start_session

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    start_session()
    for line in sys.stdin:
        folder, words = json.loads(line)
        os.chdir(folder)
        with forgotten(Path(folder).resolve()):
            answer = type_(words)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve()

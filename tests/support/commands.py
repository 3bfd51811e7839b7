"""Commands that a user types, run to their end."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import typist

_ENDS_WITHIN = 600.0


def printed(folder: Path, command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run a command to its good end; what it has printed, errors among it."""
    ended = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_ENDS_WITHIN,
        check=False,
    )
    assert ended.returncode == 0, f"{' '.join(command)}:\n{ended.stdout}"
    return ended.stdout


@dataclass(frozen=True)
class Typist:
    """Types commands of an installed `tidemark` in one process that has warmed up; see `tests/support/typist.py`."""

    process: subprocess.Popen[str]
    stderr: Path

    def type(self, folder: Path, command: str, *, may_fail: bool = False) -> str:
        """Type `tidemark ...`, of words without quotes; what it has printed, errors among it."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps([str(folder), command.split()]), file=self.process.stdin, flush=True)
        gives_up = threading.Timer(_ENDS_WITHIN, self.process.kill)
        gives_up.start()
        answer = self.process.stdout.readline()
        gives_up.cancel()
        assert answer, f"{command}:\n{self.stderr.read_text()}"
        code, text = json.loads(answer)
        assert code == 0 or may_fail, f"{command} ended with {code}:\n{text}"
        return str(text)


@contextmanager
def started_typist(python: Path, stderr: Path, environment: Mapping[str, str]) -> Iterator[Typist]:
    """A typist, of the `tidemark` that this Python has, for as long as the body runs."""
    # -P: modules beside the script would hide others of their names.
    command, pipe = [str(python), "-P", str(typist.__file__)], subprocess.PIPE
    with (
        stderr.open("w") as errors,
        subprocess.Popen(command, env=environment, text=True, stdin=pipe, stdout=pipe, stderr=errors) as process,
    ):
        yield Typist(process, stderr)

"""Rights: whether whoever examines, who is to be whoever runs, may read and write what is the pipeline's."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from streaming.base import counted
from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.operations.doctor.ailment import Ailment

FORBIDDEN = "permissions wrong"
"""The kind; where it is found nothing else is looked at, as that may only be what this process cannot see."""

_NAMED = 3
_FOLDER, _FILE = os.R_OK | os.W_OK | os.X_OK, os.R_OK
"""Files are replaced and never written to again, so it takes a right to their folder to change one."""


def examine_permissions(lake: Lake, pipeline: Pipeline) -> Iterator[Ailment]:
    """Folders of the pipeline on this machine in which something is forbidden to this process; S3 is asked nothing."""
    if lake.local() is None:
        return
    names = {pipeline.name, *(stream.name for stream in pipeline.streams)}
    names |= {operator.folder for operator in pipeline.operators}
    names |= {delivery.folder for delivery in pipeline.deliveries}
    for root in sorted({lake.path(name) for name in names} | {lake.path("_checkpoints", name) for name in names}):
        forbidden = list(_forbidden(Path(root)))
        if forbidden:
            more = f" and {len(forbidden) - _NAMED:,} more" if forbidden[_NAMED:] else ""
            yield Ailment(
                FORBIDDEN,
                root,
                f"user {_user()} may not read or change {counted(len(forbidden), 'part')} "
                f"of it: {', '.join(forbidden[:_NAMED])}{more}; somebody else has run a command on this lake, and the "
                "next run ends with an error",
                f"give it back: `chown -R {_user()} {root}` and `chmod -R u+rwX {root}`; or run this as the user whose "
                "the lake is",
            )


def _forbidden(root: Path) -> Iterator[str]:
    pending = [root] if root.is_dir() else []
    while pending:
        folder = pending.pop()
        if _is_forbidden(folder, _FOLDER):
            yield str(folder)
            if _is_forbidden(folder, os.R_OK | os.X_OK):
                continue
        try:
            with os.scandir(folder) as scan:
                entries = list(scan)
        except FileNotFoundError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(Path(entry.path))
            elif _is_forbidden(Path(entry.path), _FILE):
                yield entry.path


def _is_forbidden(path: Path, wanted: int) -> bool:
    """Whether it is there and not for this process: a pipeline that runs removes files while they are looked at."""
    return not os.access(path, wanted, effective_ids=True) and os.path.lexists(path)


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())

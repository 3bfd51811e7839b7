"""Sources: where payloads come from, with their origin."""

from streaming.sources.backlog import (
    FilesBacklog,
)
from streaming.sources.files import (
    Files,
    vanished,
)

__all__ = [
    "Files",
    "FilesBacklog",
    "vanished",
]

"""Where everything lies, and the settings that say so."""

from streaming.lake.lake import Lake, Named
from streaming.lake.settings import Settings

__all__ = [
    "Lake",
    "Named",
    "Settings",
]

"""The release of Tidemark, which the wheel takes from here, and the name under which package managers have it."""

DISTRIBUTION = "tidemark-lakehouse"
"""The name to install: `tidemark` alone is another program's."""
RELEASE = "0.2.0"

"""What `tidemark init` writes: a project of one's own, ready to run."""

from platform_assets.scaffold.project import write_project

__all__ = ["write_project"]

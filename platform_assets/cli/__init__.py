"""The `tidemark` command."""

from platform_assets.cli.app import main

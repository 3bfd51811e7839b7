"""Texts and pictures for terminals and for Markdown; nothing here knows Dagster."""

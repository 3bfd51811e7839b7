"""Pipelines that run for months: the stream process, its supervisor, and what both say of themselves."""

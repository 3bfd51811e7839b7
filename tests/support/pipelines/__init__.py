"""Pipelines that only tests run, found by `TIDEMARK_PIPELINES`."""

"""Pipelines that only benchmarks run, found by `TIDEMARK_PIPELINES`."""

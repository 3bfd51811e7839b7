"""Suites of what only one pipeline can know of its tables: one module per pipeline, named after it."""

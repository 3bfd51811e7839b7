"""Suites of what only one pipeline of the demo can know of its tables: one module per pipeline, named after it."""

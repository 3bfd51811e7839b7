"""Declarations of pipelines, one module each, found by their variable `pipeline`."""

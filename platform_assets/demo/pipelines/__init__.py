"""The pipelines of the demo, one module each, found by their variable `pipeline`."""

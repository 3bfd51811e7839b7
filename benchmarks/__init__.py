"""Benchmarks: what is measured, how, and against whom; nothing here is imported by the platform."""

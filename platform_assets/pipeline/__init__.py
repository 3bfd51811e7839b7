"""Dagster's definitions of one pipeline: assets, checks, jobs, sensors, schedules, and the builder that makes them."""

"""What Dagster knows of one pipeline: assets, checks, jobs, sensors, schedules, and the builder that makes them."""

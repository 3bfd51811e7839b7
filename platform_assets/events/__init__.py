"""Events on tables and streams for Dagster: metadata, counts, alerts, trends."""

"""What Dagster is told of tables and streams: metadata, counts, alerts, trends."""

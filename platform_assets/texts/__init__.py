"""What is told in words and pictures, for terminals and for Markdown; nothing here knows Dagster."""

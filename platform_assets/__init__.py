"""The platform room: every table as a Dagster asset, made from the declarations."""

"""Macros of the project."""

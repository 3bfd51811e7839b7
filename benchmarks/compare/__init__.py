"""Tidemark beside what people would use instead, on the same files."""

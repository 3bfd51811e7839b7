"""Rows that are made up, at a rate, and are the same whenever they are made again."""

from streaming.sources.generator.noise import noise
from streaming.sources.generator.source import Generator

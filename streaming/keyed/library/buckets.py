"""Buckets: a declared number of keys in place of many, whatever the number of tasks."""

from __future__ import annotations

from streaming.base import check_number


def bucket_of(column: str, buckets: int) -> str:
    """SQL for the bucket of a row, 0 to `buckets` - 1, by the checksum (CRC-32) of a column's text.

    Derive a column of it in a stream, and key by that: state per bucket is what other engines keep per task, and its
    sum over buckets is the same for any number of them. Where the column is null, so is its bucket.

    Raises:
        DeclarationError: `buckets` is below 1.
    """
    check_number(repr(buckets), buckets, "number of buckets")
    return f"pmod(crc32(cast(cast(`{column}` as string) as binary)), {buckets})"


def even_shares(total: int, parts: int) -> list[int]:
    """A count dealt out to so many parts as evenly as can be, the greater ones first; their sum is the count.

    Raises:
        DeclarationError: `parts` is below 1.
    """
    check_number(repr(parts), parts, "number of parts")
    share, rest = divmod(total, parts)
    return [share + 1] * rest + [share] * (parts - rest)

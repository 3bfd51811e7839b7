"""Compare and swap of a small file: of several that replace what they have seen, one wins, where the storage knows how.

Object stores do. On disks whoever has the lock beside the file is the only one to write it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streaming.tables import s3, storage


class ChangedMeanwhile(OSError):
    """Somebody else has put the file after it was looked at."""


@dataclass(frozen=True)
class Snapshot:
    """The content of a file, None where there was none, and how the store names that version of it."""

    content: bytes | None
    tag: str | None = None


def look(uri: str) -> Snapshot:
    """The file as it is now, to be handed to `swap`.

    Raises:
        StoreError, OSError: it cannot be read.
    """
    if not s3.on_s3(uri):
        return Snapshot(storage.read_bytes(uri))
    s3_object = s3.read_object(uri)
    return Snapshot(None) if s3_object is None else Snapshot(*s3_object)


def swap(uri: str, content: bytes, snapshot: Snapshot, token: str) -> None:
    """Put a small file in place whole, where it is still as in `snapshot`; `token` is as in `storage.replace_bytes`.

    No two writers may put the same `content`: by it a writer knows its own, where the store has carried out a request
    whose answer was lost, and refuses the repetition.

    Raises:
        ChangedMeanwhile: the file is another one by now; nothing was written.
        StoreError, OSError: it cannot be written.
    """
    if not s3.on_s3(uri):
        storage.replace_bytes(uri, content, token)
        return
    from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

    store, name = s3.object_store(uri)
    mode: Any = "create" if snapshot.content is None else {"e_tag": snapshot.tag}
    try:
        store.put(name, content, mode=mode)
    except (AlreadyExistsError, PreconditionError):
        if look(uri).content != content:
            raise ChangedMeanwhile(f"{uri} is another one by now") from None
    # Where the bucket is not there, as where the file is gone, the client says that the file was not found.
    except (BaseError, FileNotFoundError) as error:
        raise s3.store_error(uri, error) from None

"""Files as objects of a store that speaks S3, or of Google's or Microsoft's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from streaming.base import DeclarationError, FrozenMapping, check_mapping, is_only_place, needs, place_in
from streaming.lake import Lake
from streaming.sinks.files import CSV, JSON_LINES, PARQUET, FileFormat, FileTarget, Place

if TYPE_CHECKING:
    from streaming.sinks.object_store import ObjectStore

_FORMATS: Mapping[str, FileFormat] = {"json": JSON_LINES, "csv": CSV, "parquet": PARQUET}
_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("s3", "s3a"), "s3"),
    "gs": "gcs",
    **dict.fromkeys(("az", "abfs", "abfss"), "azure"),
    "file": "file",
}
"""The schemes of URLs, each with what Dagster shows an icon for."""

_SECRET = ("key", "secret", "token", "password", "credential", "account_key", "sas", "signature")
_NOT_SECRET = ("skip_signature", "sse_bucket_key_enabled", "imdsv1_fallback")


@dataclass(frozen=True)
class Objects(FileTarget):
    """Objects below a URL such as `s3://bucket/exports/orders`: folders, names and sizes as those of `JsonLines`.

    `format` is `json`, `csv` or `parquet`. `endpoint` is the address of a store of one's own, `region` that of S3. An
    object is seen whole or not at all; names follow from the batch, so that one that is put again replaces itself.

    Credentials are found as the store's own tools find them (`AWS_ACCESS_KEY_ID` and its like, the identity of machine
    or container), or where `secret_options` says: it maps an option to the environment variable that holds it.
    `options` are further ones of the store, such as `{"virtual_hosted_style_request": "true"}`.

    Raises:
        DeclarationError: the URL is none of a store, an option is secret, or as `JsonLines`.
    """

    format: Literal["json", "csv", "parquet"] = "json"
    endpoint: str | None = None
    region: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    secret_options: Mapping[str, str] = field(default_factory=dict)

    kind: ClassVar[str] = "s3"

    def __post_init__(self) -> None:
        needs("obstore", "Objects")
        if self.format not in _FORMATS:
            raise DeclarationError(f"format={self.format!r} of Objects is none; use {', '.join(_FORMATS)}.")
        super().__post_init__()
        for name in ("options", "secret_options"):
            check_mapping(f"{name} of Objects", getattr(self, name), str, "a dict from option to text")
            object.__setattr__(self, name, FrozenMapping(getattr(self, name)))
        scheme, _, rest = self.path.partition("://")
        scheme, named = scheme.lower(), place_in(self.path)
        if scheme not in _KINDS or not (rest.partition("/")[0] or scheme == "file"):
            raise DeclarationError(
                f"{named!r} of Objects is no URL of an object store; write 's3://bucket/prefix', with one of "
                f"{', '.join(_KINDS)}."
            )
        if not is_only_place(self.path):
            raise DeclarationError(
                f"the URL {named!r} of Objects has more in it than a place; leave user, password and query out, and "
                "name the variables that hold credentials with secret_options={'access_key_id': 'NAME_OF_A_VARIABLE'}."
            )
        if self.endpoint is not None and "@" in self.endpoint:
            raise DeclarationError(
                "the endpoint of Objects has a user or password in it; name the variables that hold them in "
                "secret_options."
            )
        object.__setattr__(self, "kind", _KINDS[scheme])
        for option in self.options:
            if any(word in option.lower() for word in _SECRET) and option not in _NOT_SECRET:
                raise DeclarationError(
                    f"option {option!r} of Objects is secret, and would be in the code and in what is shown of it; "
                    "name the environment variable that holds it in secret_options."
                )

    @property
    def file_format(self) -> FileFormat:
        """As `format` says."""
        return _FORMATS[self.format]

    def place(self, lake: Lake) -> Place:
        """The store, as `open` gives it."""
        return self.open()

    def open(self) -> ObjectStore:
        """The store; it is asked nothing yet.

        Raises:
            SinkError: an environment variable of `secret_options` is not set, or an option is not known.
        """
        # Only who writes to a store loads the client.
        from streaming.sinks.object_store import ObjectStore

        given = {"endpoint": self.endpoint, "region": self.region}
        options = {**self.options, **{name: value for name, value in given.items() if value is not None}}
        return ObjectStore(self.path, options, self.secret_options)

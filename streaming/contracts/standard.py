"""The schema of the Open Data Contract Standard, as its library ships it."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from streaming.base import needs

if TYPE_CHECKING:
    from jsonschema import Draft201909Validator


def violations(document: Any) -> list[tuple[str, str]]:
    """The parts of a document that are not as the schema has them: the place of each, and what is wrong, in order.

    Raises:
        MissingExtra: the libraries of the extra `contracts` are not installed.
    """
    found = [
        (".".join(map(str, error.absolute_path)) or "the file", str(error.message))
        for error in _validator().iter_errors(document)
        # The schema means to ask for `map` of a map alone, and asks for it of whatever has no logical type.
        if not (error.validator == "required" and "'map'" in error.message and "logicalType" not in error.instance)
    ]
    return sorted(found)


@cache
def _validator() -> Draft201909Validator:
    needs("open_data_contract_standard", "a data contract")
    needs("jsonschema", "a data contract")
    from jsonschema import Draft201909Validator

    schema = files("open_data_contract_standard").joinpath("schema.json").read_text(encoding="utf-8")
    return Draft201909Validator(json.loads(schema))

"""Data contracts: files of the Open Data Contract Standard, what they ask of a stream, and how two of them differ."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.contracts.differences import Difference, differences, is_compatible
    from streaming.contracts.reading import read_contract
    from streaming.contracts.terms import Asked, Check, Condition, Contract, Terms, renamed_terms, unique_check
    from streaming.contracts.types import ddl_of
    from streaming.contracts.writing import written_contract

make_front(__name__)

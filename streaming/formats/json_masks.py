"""Masks of values within an object of JSON: at their paths, and under their names in fields that nobody declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Union

from sqlglot import exp

from streaming.formats.leaves import Number

MaskText = Callable[[bytes], bytes | None]
_Tree = Mapping[str, Union[MaskText, "_Tree"]]


@dataclass(frozen=True)
class FieldMasks:
    """Masks by the fields of an object, whose names may come in any case.

    `tree` has them by their paths, `names` by the last names of these and of columns; `declared` has the types of
    declared fields.
    """

    tree: _Tree
    names: Mapping[str, MaskText]
    declared: Mapping[str, exp.DataType]

    @classmethod
    def of(
        cls,
        masks: Mapping[tuple[str, ...], MaskText],
        columns: Mapping[str, MaskText],
        declared: Mapping[str, exp.DataType],
    ) -> FieldMasks:
        """The masks of paths such as `("customer", "email")`, in objects of `declared` fields.

        The name of a field may have a dot, so its path is no text, as those of `columns` are.
        """
        tree: dict[str, Any] = {}
        for path, mask in masks.items():
            *outer, last = (name.lower() for name in path)
            branch = tree
            for name in outer:
                branch = branch.setdefault(name, {})
            branch[last] = mask
        names = {path.lower().rpartition(".")[2]: mask for path, mask in columns.items()}
        return cls(tree, names | {path[-1].lower(): mask for path, mask in masks.items()}, declared)

    def within(self, members: Mapping[str, Any]) -> dict[str, Any]:
        """The object with masked values.

        Of a field that nobody declared, whatever lies within it under the name of a masked field is masked, too: an
        object may come one level deeper than it should.
        """
        return self._members(members, self.tree, self.declared)

    def _members(self, members: Mapping[str, Any], tree: _Tree, declared: Mapping[str, exp.DataType]) -> dict[str, Any]:
        told = {}
        for name, each in members.items():
            of = tree.get(name.lower())
            if callable(of):
                told[name] = _masked(each, of)
            elif of is not None:
                told[name] = self._along(each, of, declared.get(name))
            elif name in declared:
                told[name] = self._along(each, {}, declared[name])
            else:
                told |= _anywhere({name: each}, self.names)
        return told

    def _along(self, value: Any, tree: _Tree, kind: exp.DataType | None) -> Any:
        """A value with what lies at the paths of a tree masked; what is there in place of an object is left out."""
        if type(value) is list:
            is_array = kind is not None and kind.this == exp.DataType.Type.ARRAY
            inner = kind.expressions[0] if kind is not None and is_array else kind
            return [self._along(each, tree, inner) for each in value]
        if type(value) is not dict:
            return None if tree else value
        if kind is not None and kind.this == exp.DataType.Type.MAP:
            # Its names are the sender's own, and declared as such.
            return value
        fields = () if kind is None or kind.this != exp.DataType.Type.STRUCT else kind.expressions
        return self._members(value, tree, {each.name: each.args["kind"] for each in fields})


def _anywhere(value: Any, names: Mapping[str, MaskText]) -> Any:
    if type(value) is list:
        return [_anywhere(each, names) for each in value]
    if type(value) is not dict:
        return value
    return {
        name: _masked(each, names[name.lower()]) if name.lower() in names else _anywhere(each, names)
        for name, each in value.items()
    }


def _masked(value: Any, mask: MaskText) -> Any:
    """The value in place of a text, or of each text in an array; null in place of anything else."""
    if type(value) is list:
        return [_masked(each, mask) for each in value]
    if type(value) is not str or type(value) is Number:
        return None
    kept = mask(value.encode())
    return None if kept is None else kept.decode()

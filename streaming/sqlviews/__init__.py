"""SQL views: queries over what stands of streams and operators, kept right for the keys that changed rows touch."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.sqlviews.positions import Position
    from streaming.sqlviews.relations import MARK, Relation, relations_of
    from streaming.sqlviews.steps import NamedRows

make_front(__name__)

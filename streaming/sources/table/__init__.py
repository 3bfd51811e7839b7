"""Delta tables as sources: another stream's log, what an operator writes, or any other."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.sources.table.placed import UnitTable, changes_of, check_has_side, unit_table_of
    from streaming.sources.table.source import Table
    from streaming.sources.table.units import UnitIndex

make_front(__name__)

"""Delta tables through delta-rs and Spark: writing, reading, history, and the storage below them."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.tables import delta, history, s3, storage
    from streaming.tables.about import NOTHING_SAID, TableAbout, describe, set_properties
    from streaming.tables.arrow import (
        Between,
        FilesRead,
        arrow_schema_of,
        files_between,
        portions_of,
        read_added,
        read_at_most,
        read_file,
        rows_between,
        rows_of,
    )
    from streaming.tables.bounds import bounded_columns, can_be_bounded, named_bounded, property_of_bounded
    from streaming.tables.data_files import TaskFile, TaskFiles, files_added, read_files, read_paths
    from streaming.tables.declarations import DECLARATION, FactChange, changed_facts, recorded_declaration
    from streaming.tables.delta import contents_on, days_of, nullable, rows_on
    from streaming.tables.file_index import FileIndex
    from streaming.tables.history import (
        attempts,
        clean_up,
        commits_of,
        copy_files,
        copy_table,
        newest_commits,
        numbers_named,
        numbers_of,
    )
    from streaming.tables.manifest import Manifest
    from streaming.tables.matching import MOST_FOUND, Keys, WriteOthers, groups_on, rows_among
    from streaming.tables.rewritten import Split, forget_days, take_out, take_out_days, to_be_taken
    from streaming.tables.sql_types import sql_type
    from streaming.tables.storage import location, make_durable
    from streaming.tables.time_ranges import EVER, TimeRange, at_most, have_common, merged, moved, occupied, shifted

make_front(__name__)

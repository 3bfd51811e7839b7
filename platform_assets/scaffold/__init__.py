"""The projects and pieces that `tidemark init` and `tidemark new` write."""

from platform_assets.scaffold.extended import To, add_delivery, add_view
from platform_assets.scaffold.pieces import write_report, write_sql_view, write_stream, write_suite
from platform_assets.scaffold.project import write_project

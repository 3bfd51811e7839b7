"""Where everything lies, and the settings that say so."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.lake.lake import OF_KEYS, OF_STREAMS, Lake, Named, Sample, place_of_batches, place_of_log
    from streaming.lake.parameters import declared_parameters, parameter
    from streaming.lake.settings import SECRET, IngestMode, Settings, find_project, make_importable

make_front(__name__)

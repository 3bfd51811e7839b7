"""Where everything lies, and the settings that say so."""

from streaming.lake.lake import Lake, Named
from streaming.lake.parameters import Parameter, declared_parameters, parameter
from streaming.lake.settings import SECRET, IngestMode, Settings, find_project, make_importable

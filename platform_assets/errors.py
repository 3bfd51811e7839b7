"""Every error the platform room raises on purpose; all of them say what was given and what to do next."""


class PlatformError(Exception):
    """Base of all errors of the platform room."""


class UnknownJob(PlatformError):
    """A job was asked for that no pipeline and no report declares."""


class RunFailed(PlatformError):
    """A run ended without success; the text names the step and its reason."""


class BadDay(PlatformError):
    """A correction was asked for a day that is no ISO date."""


class InstanceError(PlatformError):
    """The Dagster instance or its user interface cannot be started."""


class BadSelection(PlatformError):
    """Rows or columns to show were asked for that the table does not have."""


class AlertNotSent(PlatformError):
    """An alert could not be posted to where `TIDEMARK_ALERTS_TO` says."""

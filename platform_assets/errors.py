"""Every error the platform room raises on purpose; all of them say what was given and what to do next."""

from streaming.base import TidemarkError


class PlatformError(TidemarkError):
    """Base of all errors of the platform room."""

    code = "platform"


class UnknownJob(PlatformError):
    """A job was asked for that no pipeline and no report declares."""

    code = "platform.job"


class RunFailed(PlatformError):
    """A run ended without success; the text names the step and its reason."""

    code = "platform.run"


class BadDay(PlatformError):
    """A correction was asked for a day that is no ISO date."""

    code = "platform.day"


class InstanceError(PlatformError):
    """The Dagster instance or its user interface cannot be started."""

    code = "platform.instance"


class BadSelection(PlatformError):
    """Rows or columns to show were asked for that the table does not have."""

    code = "platform.selection"


class AlertNotSent(PlatformError):
    """An alert could not be posted to where `TIDEMARK_ALERTS_TO` says."""

    code = "platform.alert"

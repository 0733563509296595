"""Running decorated functions: `Invocation` holds the policy, the drivers say when."""

from ragtrace.drive.drivers import Kind, drive, kind_of
from ragtrace.drive.invocation import Ending, Invocation, Recorder

__all__ = ["Ending", "Invocation", "Kind", "Recorder", "drive", "kind_of"]

"""Running decorated functions: `Invocation` holds the policy, the drivers say when."""

from ragtrace.drive.drivers import Kind, bare, drive, kind_of
from ragtrace.drive.invocation import Ending, Invocation, Recorder
from ragtrace.drive.proxy import FunctionProxy, Proxy

__all__ = ["Ending", "FunctionProxy", "Invocation", "Kind", "Proxy", "Recorder", "bare", "drive", "kind_of"]

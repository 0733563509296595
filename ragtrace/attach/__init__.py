"""Scores onto telemetry: hold, event, metric, carrier."""

from ragtrace.attach.attacher import Attacher
from ragtrace.attach.hold import HoldProcessor, adopt, disown, held, holds, passing_by
from ragtrace.attach.instruments import Instruments

__all__ = ["Attacher", "HoldProcessor", "Instruments", "adopt", "disown", "held", "holds", "passing_by"]

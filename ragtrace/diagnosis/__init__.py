"""Why was this call (not) scored? What is configured, what answers, and what became of the last calls."""

from ragtrace.diagnosis.examination import doctor, of_environment
from ragtrace.diagnosis.report import Diagnosis

__all__ = ["Diagnosis", "doctor", "of_environment"]

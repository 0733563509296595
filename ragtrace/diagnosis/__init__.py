"""Diagnosis of a process by `ragtrace.doctor()`: settings, reachable backends, problems, outcomes of recent calls."""

from ragtrace.diagnosis.examination import doctor, of_environment
from ragtrace.diagnosis.report import Diagnosis

__all__ = ["Diagnosis", "doctor", "of_environment"]

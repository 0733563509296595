"""Diagnosis of a process by `ragtrace.doctor()`: settings, reachable backends, problems, recent outcomes."""

from ragtrace.diagnosis.examination import diagnose_environment, doctor
from ragtrace.diagnosis.report import Diagnosis

__all__ = ["Diagnosis", "doctor", "diagnose_environment"]

"""Notifiers that deliver the notifications of alerts: one module for each kind of receiver."""

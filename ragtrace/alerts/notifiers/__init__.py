"""Notifiers: one module for each kind of receiver of alerts."""

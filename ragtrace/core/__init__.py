"""Shared types, wire names, settings, errors and the ledger: what every other room builds on."""

"""Shared types, wire names, settings, errors and the ledger: imported by all other packages of ragtrace."""

"""Grants to journal entries: the engine and its worker."""

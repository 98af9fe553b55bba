"""Hypothesis without a stopwatch: two cores are shared by all, and its deadline would fail what is right."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

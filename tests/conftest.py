"""For all tests: examples of hypothesis may take as long as the machine needs; pytest-timeout bounds the whole."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

"""For all tests: examples of hypothesis may take as long as the machine needs; pytest-timeout bounds the whole."""

from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

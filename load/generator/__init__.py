"""Drives a server with a workload, and measures what comes back."""

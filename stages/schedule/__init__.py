"""Tickets to grants: the order and the place in which requests run."""

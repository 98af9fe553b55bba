"""A fleet of workers and its scheduler in virtual time: policies are compared in seconds."""

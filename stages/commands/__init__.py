"""What `headrace` does when a person types it: up, ask, status, models, init. Loaded by `stages.cli` as needed."""

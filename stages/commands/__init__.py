"""What `headrace` does when a person types it: up, ask, attach, dead and others. Loaded by `stages.cli` as needed."""

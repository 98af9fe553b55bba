"""More and fewer replicas of each stage, by what waits for it: for machines without an orchestrator that does it."""

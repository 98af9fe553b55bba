"""The messages between the stages: one file a hop. Imports nothing of ours."""

"""The live page: what the pipeline does right now, for a person with a browser."""

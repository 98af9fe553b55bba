"""The stages of the pipeline, and the processes that run them."""

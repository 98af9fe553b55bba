"""Decoders of tool calls, one file for each way in which models write them."""

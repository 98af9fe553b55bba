"""Puts Headrace's virtual environment together. Standard library only: it runs before anything is installed."""

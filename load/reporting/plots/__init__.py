"""Plots of a report: on opaque white, so that they can be read on dark pages too; colours for the colour-blind."""

"""Placement of nodes, and its reasons: verdicts, costs, regions and their report. The package knows no framework."""

"""What runs where, and why: verdicts, costs, regions and their report. Knows no framework."""

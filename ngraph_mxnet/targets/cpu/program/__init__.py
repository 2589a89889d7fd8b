"""The Program: its instructions, their validation, and how it is loaded and run."""

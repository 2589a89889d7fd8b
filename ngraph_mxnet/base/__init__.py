"""What every other room stands on: errors, settings, processes and locks, files, text."""

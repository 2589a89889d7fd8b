"""What tells about a model and its runs: the command line, verifying, audits, reports, the doctor."""

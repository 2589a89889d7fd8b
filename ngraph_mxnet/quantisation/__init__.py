"""Post-training quantisation. No target is in it, and no framework: those are in `session`, which makes recipes."""

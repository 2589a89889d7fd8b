"""Post-training quantisation: what is stored in 8 bits, and how that is found out."""

"""What placement_check.py is made of."""

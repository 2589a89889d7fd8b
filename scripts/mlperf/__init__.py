"""What nnp_validate.py is made of."""

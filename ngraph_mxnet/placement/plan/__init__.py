"""The plan of a placement, as data, in tables and in pictures."""

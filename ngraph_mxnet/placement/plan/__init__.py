"""What was placed where, as data, in tables and in pictures."""

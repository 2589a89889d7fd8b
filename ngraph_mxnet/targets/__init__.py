"""What executes graphs: each target is a package that answers to the contract in program/backend.py."""

"""MXNet's models: symbols and parameters as MXNet writes them, lowered to the IR."""

"""Where models come from: each bridge lowers a framework's models to the IR."""

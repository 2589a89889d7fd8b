"""Where models come from: each frontend lowers the models of one kind to the IR."""

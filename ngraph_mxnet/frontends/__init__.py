"""Where models come from: each frontend lowers the models of one kind to the IR."""

SYMBOL_FILE, IR_FILE = "-symbol.json", ".ngraph"
"""How the names of files usually end; that of IR is also the ending of compiled files."""

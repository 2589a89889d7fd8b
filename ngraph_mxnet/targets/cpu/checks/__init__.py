"""The demands of kernels' records on a call, as code that the runtime library interprets (`csrc/core/validator.h`).

The records' functions run on symbols in place of ints (`symbols`), and what they do becomes instructions (`code`). It
happens when the library is built, and needs no compiler.
"""

"""The instruction set of the simulated NNP: formats, instructions, the assembler, and programs of them."""

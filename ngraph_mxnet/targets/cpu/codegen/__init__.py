"""Kernels generated for a graph's own shapes (NGRAPH_CODEGEN=1).

`clusters` says what is fused, `spec` describes a generated kernel in data, `describe` makes such a description of a
`fused` node's body, `emit` and `build` turn descriptions into IR and machine code, `generator` collects the kernels
of a graph and takes their code from the cache where it can. Only `emit` and `build` import a compiler.
"""

"""What `bench_peers.py` is made of.

`spec` names peers and models, `worker` and `adapters` run in a peer's process, `export`, `onnx_file`, `layers` and
`nets` (of `net_builders`) in the one that writes the models, `driver` starts them all and measures; `machine`, `stats`,
`report` and `plot` show, `recording` adds to the store of runs.
"""

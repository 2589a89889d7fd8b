"""What `bench_training.py` is made of, beside the modules of `peers`.

A worker is a process of its own for each peer; the driver is `peers.driver`.
"""

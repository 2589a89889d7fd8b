"""What `fuzz_onnx.py` is made of.

`mutants` changes models and `entries` entries of the cache, by what they are made of and not byte by byte; `targets`
says what is done with a mutant and which errors it may end in; `worker` is the process in which atheris drives all.
"""

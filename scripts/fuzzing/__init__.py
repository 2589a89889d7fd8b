"""The modules of `fuzz_files.py`.

`mutants` changes ONNX models, `params` and `symbols` MXNet's files, `entries` entries of the cache and `artefacts`
compiled models, by what they are made of and not byte by byte. `targets` says what is done with a mutant and which
errors it may end in, `guarded_runs` runs those of compiled models. `worker` is the process in which atheris drives all.
"""

"""The table of all ops. The modules of `ops` import `ir`, so this loads them when somebody first asks for an op."""

from __future__ import annotations

from ngraph_mxnet.ir.opdef import REGISTRY, Kind, OpDef


def all_ops() -> dict[str, OpDef]:
    """Every registered op by name, sorted."""
    import ngraph_mxnet.ops  # noqa: F401  (registers them)

    return dict(sorted(REGISTRY.items()))


def ops_of(*kinds: Kind) -> list[str]:
    """The names of all ops of these kinds."""
    return [name for name, op in all_ops().items() if op.kind in kinds]


def get_op(name: str) -> OpDef:
    """The op called `name`.

    Raises:
        KeyError: there is none.
    """
    ops = all_ops() if name not in REGISTRY else REGISTRY
    if name not in ops:
        raise KeyError(f"no op {name!r}; to add one, declare it in ops/<family>.py with @register_op")
    return ops[name]

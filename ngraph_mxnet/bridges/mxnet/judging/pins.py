"""Where the user wants operators to run: attributes of a symbol, for the backend HYBRID.

`__ngraph_device__` names the device, as in `with mx.AttrScope(__ngraph_device__="CPU")`. So does MXNet's `ctx_group`,
where the group is called like a device; other groups are for MXNet's own placement and mean nothing here.
"""

from __future__ import annotations

import glob
from collections.abc import Collection

from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolGraph

DEVICE = "__ngraph_device__"
_GROUP = "__ctx_group__"


def pins_of(symbol: SymbolGraph, devices: Collection[str]) -> dict[str, str]:
    """The device of each operator that has one, by its origin as a pattern. `devices` are what groups may mean."""
    known = {device.upper() for device in devices}
    found = {}
    for node in symbol.operators():
        device, group = node.attrs.get(DEVICE), node.attrs.get(_GROUP, "")
        if device is None and group.upper() in known:
            device = group
        if device is not None:
            found[glob.escape(node.origin)] = device
    return found

"""What this build of the package once made, from the folder or made anew."""

from __future__ import annotations

from collections.abc import Callable

from ngraph_mxnet.cache.identity import package_identity
from ngraph_mxnet.cache.store import open_store


def recall_bytes(kind: str, key: str, make: Callable[[], bytes | None]) -> bytes | None:
    """What `make` gives, made once for a `kind` and `key`. None is not kept."""
    store = open_store()
    if store is None:
        return make()
    key = f"{package_identity()}\n{key}"
    content = store.get(kind, key)
    if content is None:
        content = make()
        if content is not None:
            store.put(kind, key, content)
    return content

"""What outlives the process: generated code and measurements, in files of a bounded folder."""

from ngraph_mxnet.cache.identity import package_identity
from ngraph_mxnet.cache.store import Entry, Store, open_store

__all__ = ["Entry", "Store", "open_store", "package_identity"]

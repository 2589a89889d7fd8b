"""The cache that outlives the process: programs, generated code and measurements, in files of a bounded folder."""

from ngraph_mxnet.cache.places import Place, cpu_features, package_identity, place_for
from ngraph_mxnet.cache.store import Entry, Store, get_or_make, open_store

__all__ = ["Entry", "Place", "Store", "cpu_features", "get_or_make", "open_store", "package_identity", "place_for"]

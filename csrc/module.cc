// The Python module `ngraph_mxnet._core`; docs/formats.md describes what it exposes.
#include <pybind11/pybind11.h>

namespace ngraph_mxnet {

// Each exposes a part; the first, CompiledGraph and Executable.
void define_core(pybind11::module_& m);
void define_artefacts(pybind11::module_& m);
void define_observers(pybind11::module_& m);
void define_peer_watch(pybind11::module_& m);
#ifdef NGRAPH_BUILT_FOR_MXNET
void define_recorded(pybind11::module_& m);
void define_block_lookups(pybind11::module_& m);
void define_mxnet(pybind11::module_& m);
#endif

}  // namespace ngraph_mxnet

PYBIND11_MODULE(_core, m) {
  using namespace ngraph_mxnet;
  for (const auto define : {define_core, define_artefacts, define_observers, define_peer_watch}) define(m);
#ifdef NGRAPH_BUILT_FOR_MXNET
  for (const auto define : {define_recorded, define_block_lookups, define_mxnet}) define(m);
#endif
}

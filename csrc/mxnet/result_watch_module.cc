#include "mxnet/result_watch_module.h"

#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include <pybind11/stl.h>

#include "core/gil.h"
#include "core/result_watch.h"
#include "mxnet/array_view.h"
#include "mxnet/direct.h"

namespace py = pybind11;

namespace ngraph_mxnet {
namespace {

using Addresses = std::pair<std::uintptr_t, std::uintptr_t>;

std::unique_ptr<ResultWatch> make(const std::vector<Addresses>& given) {
  std::vector<ResultWatch::Result> results;
  for (const auto& [data, writes] : given) {
    results.push_back({reinterpret_cast<const char*>(data), reinterpret_cast<const std::uint64_t*>(writes)});
  }
  return std::make_unique<ResultWatch>(results);
}

std::vector<std::tuple<std::size_t, double, std::uint64_t>> take(ResultWatch& watch, double seconds) {
  std::vector<std::tuple<std::size_t, double, std::uint64_t>> found;
  for (const ResultWatch::Event& event : watch.take(seconds)) found.emplace_back(event.result, event.time, event.writes);
  return found;
}

std::optional<Addresses> watched_array(std::uintptr_t array) {
  const ArrayView view(reinterpret_cast<engine::Handle>(array));
  if (!direct::possible() || !view.plain() || view.data() == nullptr) return std::nullopt;
  return Addresses(reinterpret_cast<std::uintptr_t>(view.data()), reinterpret_cast<std::uintptr_t>(view.version_at()));
}

}  // namespace

void define_result_watch(py::module_& m) {
  py::class_<ResultWatch>(m, "ResultWatch", "Tells which results, by the addresses of their memory, are final while graphs still run.")
      .def(py::init(&make), py::arg("results"),
           "Of each result the address of its memory, and of a 64-bit number that rises with every write to it, also at "
           "the end of what announces it; 0: there is none.")
      .def("take", &take, py::arg("seconds"), py::call_guard<GilReleased>(),
           "[(number of the result, time.monotonic(), how many writes were counted)] of what was announced since the last "
           "call; waits up to so many seconds for something.")
      .def("wake", &ResultWatch::wake, "Lets a `take` that waits return.");
  m.def("watched_array", &watched_array, py::arg("array"),
        "What ResultWatch takes of an NDArray, by its handle; None unless it lies dense and row-major in the CPU's memory. "
        "Nothing may be under way on the array.");
}

}  // namespace ngraph_mxnet

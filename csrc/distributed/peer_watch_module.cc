#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "core/python_runtime.h"
#include "distributed/peer_guard.h"
#include "distributed/peer_watch.h"

namespace py = pybind11;

namespace ngraph_mxnet {
namespace {

using Released = py::call_guard<GilReleased>;

std::shared_ptr<PeerWatch> make(int rank, std::vector<std::string> hosts, std::string token, int socket, double silence,
                                double grace) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= hosts.size()) {
    throw std::invalid_argument("rank " + std::to_string(rank) + " of " + std::to_string(hosts.size()) + " ranks");
  }
  return std::make_shared<PeerWatch>(PeerJob{rank, std::move(hosts), std::move(token)}, socket, PeerLimits{silence, grace});
}

// Another rank's bytes need not be UTF-8.
py::object text(const std::string& bytes) {
  return py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<py::ssize_t>(bytes.size()), "replace"));
}

py::object failure(const PeerWatch& watch) {
  const auto found = watch.failure();
  if (!found) return py::none();
  return py::make_tuple(found->rank, text(found->host), text(found->text));
}

}  // namespace

void define_peer_watch(py::module_& m) {
  py::class_<PeerWatch, std::shared_ptr<PeerWatch>>(m, "PeerWatch", "A rank's watch on the others; see csrc/distributed/peer_watch.h.")
      .def(py::init(&make), py::arg("rank"), py::arg("hosts"), py::arg("token"), py::arg("socket"), py::arg("silence"),
           py::arg("grace"),
           "Takes over the socket's descriptor: on rank 0 a listening one, on others a connection to it.")
      .def_property_readonly("is_inherited", &PeerWatch::is_inherited, "Whether this is a forked child.")
      .def_property_readonly("has_failed", &PeerWatch::has_failed)
      .def("failure", &failure, "(rank, host, text), or None.")
      .def_property_readonly("failure_descriptor", &PeerWatch::failure_descriptor)
      .def("take_failure", &PeerWatch::take_failure, Released())
      .def("limit_end", &PeerWatch::limit_end, Released())
      .def("fail", &PeerWatch::fail, py::arg("why"), Released())
      .def("step", &PeerWatch::step, py::arg("number"), py::arg("waits"))
      .def("leave", &PeerWatch::leave, py::arg("steps").none(true), Released())
      .def("wait", &PeerWatch::wait, py::arg("seconds"), Released())
      .def("wait_for_start", &PeerWatch::wait_for_start, py::arg("seconds"), Released())
      .def("wait_for_all", &PeerWatch::wait_for_all, py::arg("seconds"), Released())
      .def("missing", &PeerWatch::missing, Released());
  m.def("guard_process", &peer_guard::set, py::arg("watch"), "See csrc/distributed/peer_guard.h.");
  m.def("unguard_process", &peer_guard::clear);
  m.def("forbid_success", &peer_guard::forbid_success, "An exit of this process with status 0 is to be one with 1.");
}

}  // namespace ngraph_mxnet

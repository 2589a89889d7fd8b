// The functions of libmxnet's C interface, as they are before any is replaced by one of ours.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>

namespace ngraph_mxnet {

// Names of such functions, and the addresses of those of ours that are to be called in their place.
using Replacements = std::vector<std::pair<std::string, std::uintptr_t>>;

template <class Result, class... Arguments>
std::uintptr_t address_of(Result (*function)(Arguments...)) {
  return reinterpret_cast<std::uintptr_t>(function);
}

class LibMXNet {
 public:
  // The process has loaded it from `path`, and it stays loaded. Throws std::runtime_error if that is not so.
  explicit LibMXNet(const std::string& path) : library_(dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD)) {
    if (library_ == nullptr) throw std::runtime_error(path + " is not loaded");
  }

  // Throws std::runtime_error if there is no such function.
  template <class Function>
  void find(const char* name, Function* function) const {
    *function = reinterpret_cast<Function>(dlsym(library_, name));
    if (*function == nullptr) throw std::runtime_error(std::string("libmxnet has no function ") + name);
  }

 private:
  void* library_;
};

}  // namespace ngraph_mxnet

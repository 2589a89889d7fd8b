#include "mxnet/libmxnet.h"

#include <stdexcept>

#include <dlfcn.h>

namespace ngraph_mxnet {

LibMXNet mxnet;

void connect_libmxnet(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) throw std::runtime_error(path + " is not loaded");
  for (LibFunction* const function : LibFunction::all_) {
    function->address_ = dlsym(library, function->name_);
    if (function->address_ == nullptr) {
      throw std::runtime_error(std::string("libmxnet has no function ") + function->name_);
    }
  }
}

}  // namespace ngraph_mxnet

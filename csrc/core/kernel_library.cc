#include "core/kernel_library.h"

#include <stdexcept>

#include <dlfcn.h>

namespace ngraph_mxnet {
namespace {

struct Library {
  std::string path;
  void* handle = nullptr;
  std::string error;
};

Library open_library() {
  Library library;
  Dl_info here;
  dladdr(reinterpret_cast<void*>(&open_library), &here);
  const std::string self = here.dli_fname;
  library.path = self.substr(0, self.rfind('/') + 1) + "libngraph_kernels.so";
  // Never closed: Programs hold addresses in it.
  library.handle = dlopen(library.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle == nullptr) library.error = dlerror();
  return library;
}

}  // namespace

std::uintptr_t kernel_address(const std::string& symbol) {
  static const Library library = open_library();
  if (library.handle == nullptr) {
    throw std::out_of_range("no kernel '" + symbol + "': the kernel library does not load: " + library.error);
  }
  void* address = dlsym(library.handle, symbol.c_str());
  if (address == nullptr) throw std::out_of_range("no kernel '" + symbol + "' in " + library.path);
  return reinterpret_cast<std::uintptr_t>(address);
}

}  // namespace ngraph_mxnet

#include "mxnet/libmxnet.h"

#include <cstring>
#include <stdexcept>

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

namespace ngraph_mxnet {

LibMXNet mxnet;

namespace {

const link_map* library_map = nullptr;

// The parts of a loaded library's dynamic section that lead to its table of functions.
struct FunctionTable {
  const ElfW(Rela)* begin = nullptr;
  std::size_t bytes = 0;
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;

  explicit FunctionTable(const ElfW(Dyn)* entry) {
    for (; entry->d_tag != DT_NULL; ++entry) {
      const auto* const address = reinterpret_cast<const void*>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_JMPREL) begin = static_cast<const ElfW(Rela)*>(address);
      if (entry->d_tag == DT_PLTRELSZ) bytes = entry->d_un.d_val;
      if (entry->d_tag == DT_SYMTAB) symbols = static_cast<const ElfW(Sym)*>(address);
      if (entry->d_tag == DT_STRTAB) names = static_cast<const char*>(address);
    }
  }

  // Where the address of the function stands, from the library's beginning; 0: it doesn't.
  std::size_t find(const char* name) const {
    if (begin == nullptr || symbols == nullptr || names == nullptr) return 0;
    for (const ElfW(Rela)* one = begin; one < begin + bytes / sizeof(*begin); ++one) {
      if (std::strcmp(names + symbols[ELF64_R_SYM(one->r_info)].st_name, name) == 0) return one->r_offset;
    }
    return 0;
  }
};

// True if the loader has made this part of the library read-only.
bool is_protected(std::uintptr_t base, std::size_t offset) {
  const auto* const header = reinterpret_cast<const ElfW(Ehdr)*>(base);
  const auto* const parts = reinterpret_cast<const ElfW(Phdr)*>(base + header->e_phoff);
  for (int i = 0; i < header->e_phnum; ++i) {
    const ElfW(Phdr)& part = parts[i];
    if (part.p_type == PT_GNU_RELRO && offset >= part.p_vaddr && offset < part.p_vaddr + part.p_memsz) return true;
  }
  return false;
}

}  // namespace

bool LibFunction::redirect(void* function) const {
  if (library_map == nullptr) return false;
  const std::size_t offset = FunctionTable(library_map->l_ld).find(name_);
  if (offset == 0 || is_protected(library_map->l_addr, offset)) return false;
  __atomic_store_n(reinterpret_cast<void**>(library_map->l_addr + offset), function, __ATOMIC_RELEASE);
  return true;
}

void connect_libmxnet(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) throw std::runtime_error(path + " is not loaded");
  for (LibFunction* const function : LibFunction::all_) {
    function->address_ = dlsym(library, function->name_);
    if (function->address_ == nullptr) {
      throw std::runtime_error(std::string("libmxnet has no function ") + function->name_);
    }
  }
  link_map* found = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &found) == 0) library_map = found;
}

}  // namespace ngraph_mxnet

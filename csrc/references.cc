#include "references.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <system_error>

namespace ngraph_mxnet {
namespace {

constexpr char kMagic[] = "ngraph artefact\n";
constexpr std::uint32_t kFormat = 1, kMostSections = 4096, kReference = 4;
constexpr long kHeader = 64, kEntry = 64;

// Reads numbers and arrays one after the other.
class File {
 public:
  explicit File(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "rbe"), std::fclose) {
    if (file_ == nullptr) throw std::system_error(errno, std::generic_category(), path);
  }

  void seek(std::uint64_t offset) {
    if (offset > INT64_MAX || std::fseek(file_.get(), static_cast<long>(offset), SEEK_SET) != 0) fail("is damaged");
  }
  void read(void* to, std::size_t bytes) {
    if (std::fread(to, 1, bytes, file_.get()) != bytes) fail("is cut off");
  }
  template <class T>
  T number() {
    T value;
    read(&value, sizeof value);
    return value;
  }
  [[noreturn]] void fail(const std::string& why) const { throw FormatError(path_ + " " + why); }

 private:
  const std::string& path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

std::vector<std::unique_ptr<char[]>> read_arrays(File* file, const std::vector<NamedSpec>& specs) {
  std::vector<std::unique_ptr<char[]>> arrays;
  for (const NamedSpec& each : specs) {
    const auto bytes = file->number<std::uint64_t>();
    if (bytes != each.spec.bytes()) {
      file->fail("has a reference of " + std::to_string(bytes) + " bytes for " + each.name + ", expected " +
                 std::to_string(each.spec.bytes()));
    }
    arrays.push_back(std::make_unique<char[]>(bytes));
    file->read(arrays.back().get(), bytes);
  }
  return arrays;
}

}  // namespace

std::unique_ptr<const Reference> read_reference(const std::string& path, const Artefact& model, std::size_t shape_set) {
  const ShapeSet& set = model.shape_sets[shape_set];
  File file(path);
  char magic[sizeof kMagic - 1];
  file.read(magic, sizeof magic);
  const auto format = file.number<std::uint32_t>(), sections = file.number<std::uint32_t>();
  // The library has checked the file when it loaded the model, but another may stand in its place now.
  if (std::memcmp(magic, kMagic, sizeof magic) != 0 || format != kFormat || sections > kMostSections) {
    file.fail("is no longer the file that was loaded");
  }
  for (std::uint32_t i = 0; i < sections; ++i) {
    file.seek(kHeader + i * kEntry);
    const auto kind = file.number<std::uint32_t>();
    file.number<std::uint32_t>();  // flags
    if (kind != kReference) continue;
    file.seek(file.number<std::uint64_t>());
    const auto number = file.number<std::uint32_t>(), inputs = file.number<std::uint32_t>(),
               outputs = file.number<std::uint32_t>();
    if (number != shape_set) continue;
    if (inputs != set.inputs.size() || outputs != set.outputs.size()) {
      file.fail("has a reference of " + std::to_string(inputs) + " inputs and " + std::to_string(outputs) +
                " outputs, expected " + std::to_string(set.inputs.size()) + " and " + std::to_string(set.outputs.size()));
    }
    auto found = std::make_unique<Reference>();
    found->inputs = read_arrays(&file, set.inputs);
    found->outputs = read_arrays(&file, set.outputs);
    return found;
  }
  return nullptr;
}

}  // namespace ngraph_mxnet

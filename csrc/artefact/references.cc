#include "artefact/references.h"

#include <cstdint>
#include <string>

#include "artefact/artefact_file.h"

namespace ngraph_mxnet {
namespace {

std::vector<std::vector<char>> read_arrays(Reader* reader, const Section& section, const std::vector<NamedSpec>& specs) {
  std::vector<std::vector<char>> arrays;
  for (const NamedSpec& each : specs) {
    const auto bytes = reader->number<std::uint64_t>();
    if (bytes != each.spec.bytes()) {
      fail(section.str() + " has " + std::to_string(bytes) + " bytes for " + each.name + ", expected " +
           std::to_string(each.spec.bytes()));
    }
    arrays.push_back(reader->numbers<char>(bytes));
  }
  return arrays;
}

}  // namespace

std::optional<Reference> read_reference(const Artefact& model, std::size_t shape_set) {
  const ShapeSet& set = model.shape_sets[shape_set];
  for (const Section& section : model.file->sections()) {
    if (section.kind != kReference) continue;
    model.file->check(section);  // before its number, which may be damaged, too
    Reader reader(model.file->content(section), section.bytes, section.str());
    const std::uint32_t number = reader.u32(), inputs = reader.u32(), outputs = reader.u32();
    if (number != shape_set) continue;
    if (inputs != set.inputs.size() || outputs != set.outputs.size()) {
      fail(section.str() + " has " + std::to_string(inputs) + " inputs and " + std::to_string(outputs) +
           " outputs, expected " + std::to_string(set.inputs.size()) + " and " + std::to_string(set.outputs.size()));
    }
    Reference found;
    found.inputs = read_arrays(&reader, section, set.inputs);
    found.outputs = read_arrays(&reader, section, set.outputs);
    return found;
  }
  return std::nullopt;
}

}  // namespace ngraph_mxnet

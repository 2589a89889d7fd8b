// Fields that several kinds of sections of a compiled file share: docs/artefact.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "artefact/artefact_file.h"
#include "artefact/format_reader.h"
#include "core/bound_program.h"

namespace ngraph_mxnet {

constexpr std::size_t kMostRank = 32;     // NumPy's
constexpr std::size_t kMostOrigin = 200;  // of an origin, which is for profiles, each instruction has a copy of its own

// The library's. Throws FormatError if there is none, CpuError if this CPU does not run it.
Kernel named_kernel(const std::string& name);

// A constant's place in DATA. Throws FormatError if it lies outside.
Constant read_constant(Reader* reader, const Section& data, const ArtefactFile& file);

// Texts that are told by their numbers.
class Texts {
 public:
  explicit Texts(Reader* reader);
  const std::string& operator[](std::uint32_t number) const {
    if (number >= texts_.size()) fail("an instruction has no name");
    return texts_[number];
  }

 private:
  std::vector<std::string> texts_;
};

}  // namespace ngraph_mxnet

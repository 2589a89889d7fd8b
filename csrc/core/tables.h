// Tables that binding makes for the sizes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/aligned_buffer.h"

namespace ngraph_mxnet {

// A kind of table, as `TableRecipe` in microkernels/tables.py: how many numbers it is made of, and the table of these,
// whatever they are. Throws std::invalid_argument for one of more than 2^27 entries, or with offsets beyond a tensor of
// 2 GiB.
struct TableKind {
  const char* name;
  std::size_t numbers;
  AlignedBuffer (*make)(const std::vector<std::int64_t>& numbers);
};

// In the order of their numbers in files.
extern const std::array<TableKind, 4> kTables;

// Null if none has the name.
const TableKind* find_table(const std::string& name);

}  // namespace ngraph_mxnet

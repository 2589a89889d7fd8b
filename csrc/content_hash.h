// A fast 64-bit hash of memory, for recognising content; not for adversaries.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ngraph_mxnet {

std::uint64_t content_hash(const void* data, std::size_t bytes);

// A hash of a few words spread over the memory: what changes when it is freed and used for something else.
std::uint64_t sample_hash(const void* data, std::size_t bytes);

}  // namespace ngraph_mxnet

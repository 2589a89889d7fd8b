#include "core/lock_order.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace ngraph_mxnet {
namespace {

// NGRAPH_CHECK_LOCKS=1, for tests: a lock out of order ends the process.
const bool checking = [] {
  const char* const wanted = std::getenv("NGRAPH_CHECK_LOCKS");
  return wanted != nullptr && *wanted == '1';
}();

thread_local std::uint64_t held = 0;  // the bits of the ranks

std::uint64_t bit(Rank rank) { return std::uint64_t{1} << static_cast<int>(rank); }

}  // namespace

void about_to_lock(Rank rank) {
  if (!checking) return;
  if (held >= bit(rank)) {
    std::fprintf(
        stderr,
        "ngraph_mxnet: a lock of rank %d is taken while those of ranks %#llx are held (csrc/core/lock_order.h)\n",
        static_cast<int>(rank), static_cast<unsigned long long>(held));
    std::abort();
  }
  held |= bit(rank);
}

void unlocked(Rank rank) {
  if (checking) held &= ~bit(rank);
}

}  // namespace ngraph_mxnet

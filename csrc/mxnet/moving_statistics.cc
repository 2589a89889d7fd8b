#include "mxnet/moving_statistics.h"

#include <cstddef>
#include <memory>
#include <stdexcept>

#include "mxnet/array_view.h"
#include "mxnet/direct_runs.h"

namespace ngraph_mxnet {
namespace {

using engine::Handle;

constexpr const char* kName = "ngraph_mxnet";

// Moves the statistics at once. Call it only where the engine keeps all others out. Returns false if an array has no memory.
bool move_now(const std::vector<MovingStatistic>& statistics) {
  for (const MovingStatistic& one : statistics) {
    const ArrayView moving(one.moving);
    moving.unblock();
    auto* const into = reinterpret_cast<float*>(moving.data());
    const auto* const from = reinterpret_cast<const float*>(ArrayView(one.batch).data());
    if (into == nullptr || from == nullptr) return false;
    const float share = 1.0f - one.momentum;
    for (std::size_t i = 0; i < moving.elements(); ++i) into[i] = into[i] * one.momentum + from[i] * share;
  }
  return true;
}

}  // namespace

bool move_statistics(const std::vector<MovingStatistic>& statistics, engine::Device device) {
  if (statistics.empty()) return true;
  std::vector<Handle> read, written;
  for (const MovingStatistic& one : statistics) {
    read.push_back(one.batch);
    written.push_back(one.moving);
  }
  const auto here = [&](const engine::Completion& completion) {
    if (!move_now(statistics)) return false;
    completion();
    return true;
  };
  switch (engine::run_now(here, read, written, device, kName)) {
    case engine::Outcome::kRan: return true;
    case engine::Outcome::kDeclined: return false;
    case engine::Outcome::kBusy: break;
  }
  const auto kept = std::make_shared<Arrays>();
  auto later = std::make_shared<std::vector<MovingStatistic>>();
  for (const MovingStatistic& one : statistics) {
    if (!kept->add_same(one.moving) || !kept->add_same(one.batch)) return false;
    later->push_back({kept->handles().end()[-2], kept->handles().end()[-1], one.momentum});
  }
  const auto body = [kept, later](const engine::Completion& completion) {
    if (move_now(*later)) {
      completion();
    } else {
      completion.fail(std::runtime_error("a moving statistic has no memory"));
    }
    return true;
  };
  return engine::run_later(body, read, written, device, kName);
}

}  // namespace ngraph_mxnet

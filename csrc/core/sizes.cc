#include "core/sizes.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace ngraph_mxnet {
namespace {

int operands(SizeOp op) {
  switch (op) {
    case SizeOp::kNumber:
      return 0;
    case SizeOp::kPositive:
    case SizeOp::kZero:
      return 1;
    case SizeOp::kWhere:
      return 3;
    default:
      return 2;
  }
}

// 0 by 0, of what a kWhere does not choose.
std::int64_t divide(std::int64_t a, std::int64_t b) { return b == 0 ? 0 : SizeInts::divide(a, b); }

}  // namespace

std::int64_t counted(std::int64_t count) {
  if (count < 0 || count > kMostSize) throw std::invalid_argument("a size of " + std::to_string(count));
  return count;
}

SizeCode::SizeCode(std::size_t symbols, std::vector<SizeStep> steps) : symbols_(symbols), steps_(std::move(steps)) {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const SizeStep& step = steps_[i];
    const std::int64_t named[] = {step.a, step.b, step.c};
    const auto end = static_cast<std::int64_t>(symbols_ + i);
    bool fits = step.op >= SizeOp::kNumber && step.op <= SizeOp::kWhere && step.segment >= 0 &&
                step.segment <= static_cast<std::int64_t>(steps_.size());
    for (int k = 0; fits && k < operands(step.op); ++k) fits = named[k] >= 0 && named[k] < end;
    if (!fits) throw std::invalid_argument("step " + std::to_string(i) + " of the sizes is none");
    segments_.resize(std::max<std::size_t>(segments_.size(), step.segment + 1));
    segments_[step.segment].push_back(i);
  }
}

std::size_t SizeCode::steps(std::int64_t segment) const {
  return segment < static_cast<std::int64_t>(segments_.size()) ? segments_[segment].size() : 0;
}

void SizeCode::evaluate(std::int64_t segment, std::vector<std::int64_t>* slots) const {
  if (segment >= static_cast<std::int64_t>(segments_.size())) return;
  std::vector<std::int64_t>& s = *slots;
  for (const std::size_t i : segments_[segment]) {
    const SizeStep& step = steps_[i];
    std::int64_t& result = s[symbols_ + i];
    switch (step.op) {
      case SizeOp::kNumber:
        result = step.a;
        break;
      case SizeOp::kAdd:
        result = SizeInts::add(s[step.a], s[step.b]);
        break;
      case SizeOp::kMultiply:
        result = SizeInts::multiply(s[step.a], s[step.b]);
        break;
      case SizeOp::kFloorDivide:
        result = divide(s[step.a], s[step.b]);
        break;
      case SizeOp::kModulo:
        result = SizeInts::subtract(s[step.a], SizeInts::multiply(divide(s[step.a], s[step.b]), s[step.b]));
        break;
      case SizeOp::kMin:
        result = std::min(s[step.a], s[step.b]);
        break;
      case SizeOp::kMax:
        result = std::max(s[step.a], s[step.b]);
        break;
      case SizeOp::kPositive:
        result = s[step.a] > 0 ? 1 : 0;
        break;
      case SizeOp::kZero:
        result = s[step.a] == 0 ? 1 : 0;
        break;
      case SizeOp::kWhere:
        result = s[step.a] != 0 ? s[step.b] : s[step.c];
        break;
    }
  }
}

}  // namespace ngraph_mxnet

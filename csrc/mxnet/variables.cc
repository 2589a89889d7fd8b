#include "mxnet/variables.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "core/fork_safety.h"
#include "mxnet/array_view.h"
#include "mxnet/direct.h"

namespace ngraph_mxnet {
namespace {

using engine::Handle;

// The request that each gradient was attached with, by the variable's node on the tape. MXNet does not tell the request.
class Requests {
 public:
  void add(const std::shared_ptr<const void>& node, std::uint32_t request) {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    requests_[node.get()] = {node, request};
    if (requests_.size() < most_) return;
    for (auto at = requests_.begin(); at != requests_.end();) at = at->second.first.expired() ? requests_.erase(at) : ++at;
    most_ = std::max(kFew, requests_.size() * 2);
  }

  // Finds the request of the variable with this node. Returns false if the request is not known.
  bool find(const std::shared_ptr<const void>& node, std::uint32_t* request) {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    const auto at = requests_.find(node.get());
    if (at == requests_.end() || at->second.first.expired()) return false;
    *request = at->second.second;
    return true;
  }

 private:
  static constexpr std::size_t kFew = 1024;

  ForkSafeMutex mutex_{Rank::kVariables};
  std::unordered_map<const void*, std::pair<std::weak_ptr<const void>, std::uint32_t>> requests_;
  std::size_t most_ = kFew;
};

// Never destroyed: threads may outlive static objects.
Requests& requests() {
  static auto* const all = new Requests;
  return *all;
}

int mark(std::uint32_t count, Handle* arrays, std::uint32_t* asked, Handle* gradients) {
  const int result = mxnet.mark(count, arrays, asked, gradients);
  for (std::uint32_t i = 0; result == 0 && i < count && direct::possible(); ++i) {
    requests().add(ArrayView(arrays[i]).node(), asked[i]);
  }
  return result;
}

}  // namespace

Variables::~Variables() {
  for (Handle gradient : gradients) mxnet.free(gradient);
}

Replacements variables::replacements() { return {{"MXAutogradMarkVariables", address_of(mark)}}; }

std::shared_ptr<const Variables> variables::of(const std::vector<Handle>& arrays, const std::vector<TensorSpec>& specs) {
  auto found = std::make_shared<Variables>();
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const ArrayView view(arrays[i]);
    std::uint32_t request = 0;
    Handle gradient = nullptr;
    found->known = found->known && view.may_be_recorded() && requests().find(view.node(), &request) &&
                   mxnet.gradient(arrays[i], &gradient) == 0 && gradient != nullptr;
    if (gradient != nullptr) found->gradients.push_back(gradient);
    found->known = found->known && direct_runs::all_plain({gradient}, {specs[i]});
    found->requests.push_back(request);
    if (!found->arrays.add_same(arrays[i])) throw std::runtime_error("MXNet copies no handle of an array");
  }
  return found;
}

}  // namespace ngraph_mxnet

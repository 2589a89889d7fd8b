#include "core/binder.h"

#include <optional>
#include <utility>

#include "core/validator.h"

namespace ngraph_mxnet {
namespace {

// Number of the next graph that MXNet has nothing to do with. These numbers are odd, as those of CompileCache are.
std::atomic<std::uint64_t> next_graph{1};

}  // namespace

Binder::Binder(std::shared_ptr<const Program> program, std::shared_ptr<Preparation> preparation, int threads,
               std::string name, bool checked)
    : program_(std::move(program)),
      preparation_(std::move(preparation)),
      threads_(threads),
      name_(std::move(name)),
      checked_(checked),
      graph_(next_graph.fetch_add(2)) {}

std::shared_ptr<Executable> Binder::bind(const Shapes& shapes) const {
  std::optional<Bound> bound = bind_program(*program_, shapes, checked_ ? kStepsOfFiles : kAnySteps);
  if (!bound) return nullptr;
  if (checked_) {
    check_instructions(*bound->program, {bytes_of(bound->inputs), bytes_of(bound->outputs), preparation_->bytes()});
  }
  auto made = std::make_shared<Executable>(std::move(bound->program), preparation_, std::move(bound->inputs),
                                           std::move(bound->outputs), threads_, name_);
  made->set_graph(graph_.load());
  made->set_for_shapes([self = shared_from_this()](const auto& others) { return self->bind(others); }, this);
  return made;
}

}  // namespace ngraph_mxnet

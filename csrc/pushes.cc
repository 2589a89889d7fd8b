#include "pushes.h"

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>

#include <pthread.h>

namespace ngraph_mxnet {
namespace {

// Of MXNet's C interface, as in its c_api.h.
using Handle = void*;

struct {
  int (*forward)(Handle executor, int is_train);
  int (*backward)(Handle executor, std::uint32_t count, Handle* head_gradients, int is_train);
  int (*cached_op)(Handle op, int inputs, Handle* in, int* outputs, Handle** out, const int** storage_types);
} mxnet;

constexpr std::chrono::seconds kPatience{1};

// In a forked child whoever had the turn may not be there: it gets a new mutex. None is destroyed, for threads may
// outlive static objects, and one that forks in its turn releases the old one.
std::timed_mutex* turns = new std::timed_mutex;

[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { turns = new std::timed_mutex; });

bool engine_queues() {
  static const bool queues = [] {
    const char* const engine = std::getenv("MXNET_ENGINE_TYPE");
    return engine == nullptr || std::string_view(engine) != "NaiveEngine";
  }();
  return queues;
}

// This thread's turn, unless it has one already: a monitor may call what calls us.
class Turn {
 public:
  Turn() : outer_(current) {
    current = this;
    if (outer_ == nullptr && engine_queues()) take();
  }
  ~Turn() {
    give_away();
    current = outer_;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  void take() {
    std::timed_mutex* const mutex = turns;
    if (mutex->try_lock_for(kPatience)) taken_ = mutex;
  }

  // Whether there was one.
  bool give_away() {
    std::timed_mutex* const mutex = std::exchange(taken_, nullptr);
    if (mutex != nullptr) mutex->unlock();
    return mutex != nullptr;
  }

  // The one that this thread has taken, of those that are nested in one another.
  static Turn* outermost() {
    Turn* turn = current;
    while (turn != nullptr && turn->outer_ != nullptr) turn = turn->outer_;
    return turn;
  }

 private:
  static thread_local Turn* current;
  Turn* const outer_;
  std::timed_mutex* taken_ = nullptr;
};

thread_local Turn* Turn::current = nullptr;

int forward(Handle executor, int is_train) {
  Turn turn;
  return mxnet.forward(executor, is_train);
}

int backward(Handle executor, std::uint32_t count, Handle* head_gradients, int is_train) {
  Turn turn;
  return mxnet.backward(executor, count, head_gradients, is_train);
}

int cached_op(Handle op, int inputs, Handle* in, int* outputs, Handle** out, const int** storage_types) {
  Turn turn;
  return mxnet.cached_op(op, inputs, in, outputs, out, storage_types);
}

}  // namespace

void pushes::connect(const std::string& path) {
  const LibMXNet library(path);
  library.find("MXExecutorForward", &mxnet.forward);
  library.find("MXExecutorBackwardEx", &mxnet.backward);
  library.find("MXInvokeCachedOpEx", &mxnet.cached_op);
}

Replacements pushes::replacements() {
  return {{"MXExecutorForward", address_of(forward)},
          {"MXExecutorBackwardEx", address_of(backward)},
          {"MXInvokeCachedOpEx", address_of(cached_op)}};
}

pushes::OutOfTurn::OutOfTurn() {
  Turn* const turn = Turn::outermost();
  had_one_ = turn != nullptr && turn->give_away();
}

pushes::OutOfTurn::~OutOfTurn() {
  if (had_one_) Turn::outermost()->take();
}

}  // namespace ngraph_mxnet

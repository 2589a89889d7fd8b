#include "mxnet/turns.h"

#include <chrono>
#include <utility>

#include <pthread.h>

#include "mxnet/engine.h"

namespace ngraph_mxnet {
namespace {

constexpr std::chrono::seconds kPatience{1};

// In a forked child whoever had the turn may not be there: it gets a new mutex. None is destroyed, for threads may
// outlive static objects, and one that forks in its turn releases the old one.
std::timed_mutex* turns = new std::timed_mutex;

[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { turns = new std::timed_mutex; });

}  // namespace

thread_local Turn* Turn::current = nullptr;

Turn::Turn() : outer_(current) {
  current = this;
  if (outer_ == nullptr && engine::queues()) take();
}

Turn::~Turn() {
  give_away();
  current = outer_;
}

void Turn::take() {
  std::timed_mutex* const mutex = turns;
  if (mutex->try_lock_for(kPatience)) taken_ = mutex;
}

bool Turn::give_away() {
  std::timed_mutex* const mutex = std::exchange(taken_, nullptr);
  if (mutex != nullptr) mutex->unlock();
  return mutex != nullptr;
}

Turn* Turn::outermost() {
  Turn* turn = current;
  while (turn != nullptr && turn->outer_ != nullptr) turn = turn->outer_;
  return turn;
}

OutOfTurn::OutOfTurn() {
  Turn* const turn = Turn::outermost();
  had_one_ = turn != nullptr && turn->give_away();
}

OutOfTurn::~OutOfTurn() {
  if (had_one_) Turn::outermost()->take();
}

}  // namespace ngraph_mxnet

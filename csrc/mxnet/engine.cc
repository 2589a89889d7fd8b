#include "mxnet/engine.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

#include <pthread.h>
#include <unistd.h>

namespace ngraph_mxnet {

namespace engine {
namespace {

constexpr int kAsync = 4;  // MXNet's FnProperty: what may run on the thread that pushes it

// Stands around what uses MXNet's engine, which is destroyed when the process exits, while daemon threads of Python may
// still be in calls of ours. What they are doing is waited for first; who comes later stands still until the process is
// gone.
class EngineUse {
 public:
  EngineUse() {
    if (depth++ > 0) return;
    threads.fetch_add(1, std::memory_order_seq_cst);
    if (!over.load(std::memory_order_seq_cst) || std::this_thread::get_id() == exiting) return;
    threads.fetch_sub(1, std::memory_order_seq_cst);
    for (;;) pause();
  }
  ~EngineUse() {
    if (--depth > 0) return;
    threads.fetch_sub(1, std::memory_order_seq_cst);
    // The engine has begun by now, so it ends behind this.
    static const int registered = std::atexit(end) + pthread_atfork(nullptr, nullptr, forget);
    static_cast<void>(registered);
  }
  EngineUse(const EngineUse&) = delete;
  EngineUse& operator=(const EngineUse&) = delete;

 private:
  static void end() {
    exiting = std::this_thread::get_id();
    over.store(true, std::memory_order_seq_cst);
    // Not for ever: a thread may stand still in Python, which has ended before.
    for (int i = 0; i < kMilliseconds && threads.load(std::memory_order_seq_cst) > 0; ++i) usleep(1000);
  }
  // The child has none of the other threads.
  static void forget() { threads.store(depth > 0, std::memory_order_relaxed); }

  static constexpr int kMilliseconds = 1000;
  inline static thread_local int depth = 0;
  inline static std::atomic<int> threads{0};
  inline static std::atomic<bool> over{false};
  inline static std::thread::id exiting;
};

bool push(LibMXNet::Pushed function, void* argument, LibMXNet::Deleter deleter, const std::vector<Handle>& read,
          const std::vector<Handle>& written, Device device, const char* name) {
  const EngineUse use;
  return mxnet.push(function, argument, deleter, &device, const_cast<Handle*>(read.data()),
                    static_cast<int>(read.size()), const_cast<Handle*>(written.data()),
                    static_cast<int>(written.size()), &kAsync, 0, name, false) == 0;
}

// The state that `run_now` shares with the engine. The engine may call `answer` after `run_now` has returned.
struct Attempt {
  explicit Attempt(const Body& body) : body(body) {}

  const Body& body;
  const std::thread::id thread = std::this_thread::get_id();
  bool pushing = true;  // this and the next belong to that thread
  Outcome outcome = Outcome::kBusy;
};

// The engine's function. Who pushed it keeps the attempt as long as it may be answered; the argument goes with the
// completion.
void answer(void*, const Completion* completion, void* argument) {
  Attempt& attempt = **static_cast<std::shared_ptr<Attempt>*>(argument);
  const bool in_time = attempt.thread == std::this_thread::get_id() && attempt.pushing;
  const Completion done = *completion;
  if (in_time) attempt.outcome = attempt.body(done) ? Outcome::kRan : Outcome::kDeclined;
  if (!in_time || attempt.outcome == Outcome::kDeclined) done();
}

// MXNet copies it as a dmlc::Error, which has nothing but its base.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace

void Completion::fail(const std::exception& error) const {
  const Error copied(error.what());
  call_(engine_, block_, &copied);
}

void check(bool well) {
  if (!well) throw std::runtime_error(mxnet.last_error());
}

Outcome run_now(const Body& body, const std::vector<Handle>& read, const std::vector<Handle>& written, Device device,
                const char* name) {
  const auto attempt = std::make_shared<Attempt>(body);
  const auto drop = [](void* argument) { delete static_cast<std::shared_ptr<Attempt>*>(argument); };
  const bool pushed = push(answer, new std::shared_ptr<Attempt>(attempt), drop, read, written, device, name);
  attempt->pushing = false;
  return pushed ? attempt->outcome : Outcome::kDeclined;
}

bool run_later(Body body, const std::vector<Handle>& read, const std::vector<Handle>& written, Device device,
               const char* name) {
  const auto start = [](void*, const Completion* completion, void* argument) {
    const Completion done = *completion;
    if (!(*static_cast<Body*>(argument))(done)) done();
  };
  const auto drop = [](void* argument) { delete static_cast<Body*>(argument); };
  return push(start, new Body(std::move(body)), drop, read, written, device, name);
}

bool touch(const std::vector<Handle>& arrays, void (*behind)(void* argument), void* argument) {
  const auto nothing = [](void*, const Completion* completion, void*) { (*completion)(); };
  return push(nothing, argument, behind, {}, arrays, {}, "ngraph_mxnet");
}

void invoke(const char* op, std::vector<Handle> in, Handle target) {
  Handle found = nullptr, out[] = {target}, *outputs = out;
  check(mxnet.find_op(op, &found) == 0);
  int count = 1;
  check(mxnet.invoke(found, static_cast<int>(in.size()), in.data(), &count, &outputs, 0, nullptr, nullptr) == 0);
}

bool queues() {
  static const bool queued = [] {
    const char* const engine = std::getenv("MXNET_ENGINE_TYPE");
    return engine == nullptr || std::string_view(engine) != "NaiveEngine";
  }();
  return queued;
}

}  // namespace engine

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

#include "core/workers.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>

#include "core/places.h"

namespace ngraph_mxnet {
namespace {

class Pool {
 public:
  // False, with the job as it was, if there is no thread.
  bool submit(std::function<void()>* job) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.empty()) {
      if (!add_thread()) return false;
      jobs_.push_back(std::move(*job));
    } else {
      // The one that was last at work: its own team of threads is the most likely to be still awake.
      Place* const place = idle_.back();
      idle_.pop_back();
      place->job = std::move(*job);
      place->changed.notify_one();
    }
    return true;
  }

 private:
  struct Place {
    std::condition_variable changed;
    std::function<void()> job;
  };

  // If there may be one more, and can be; whether there is any.
  bool add_thread() {
    if (threads_ < usable_cores()) {
      try {
        std::thread(&Pool::work, this).detach();
        ++threads_;
      } catch (const std::system_error&) {
      }
    }
    return threads_ > 0;
  }

  void work() {
    Place place;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      if (jobs_.empty()) {
        idle_.push_back(&place);
        place.changed.wait(lock, [&] { return place.job != nullptr; });
      } else {
        place.job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      lock.unlock();
      place.job();
      place.job = nullptr;  // what it holds may take any lock to go
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::deque<std::function<void()>> jobs_;
  std::vector<Place*> idle_;
  int threads_ = 0;
};

// Never destroyed: threads may outlive static objects.
Pool* pool = new Pool;

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });

}  // namespace

void workers::submit(std::function<void()> job) {
  if (!pool->submit(&job)) job();
}

}  // namespace ngraph_mxnet

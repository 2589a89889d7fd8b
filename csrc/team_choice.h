// Which is faster lately: a whole team, or one thread.
#pragma once

#include <algorithm>
#include <atomic>

namespace ngraph_mxnet {

// To wake a thread takes longer than a short run; where other threads of the process spin (MXNet's own, after each of its
// parallel loops), or other processes are busy, the second thread of a team may get a core late. No result depends on the
// team, so both are tried now and again, and rarely where one keeps winning. Runs that find the team's threads asleep and
// those that find them awake are told apart. Any number of threads may ask and tell at once: what they lose of each other
// only delays.
class TeamChoice {
 public:
  // Whether the next run should be on one thread.
  bool alone(bool asleep) {
    Times& times = times_[asleep];
    if (times.team.load(std::memory_order_relaxed) > kShort) return false;
    const unsigned run = times.runs.fetch_add(1, std::memory_order_relaxed);
    if (run < kFirst) return run % 2 == 1;
    const bool better = times.better();
    if (run < times.next.load(std::memory_order_relaxed)) return better;
    times.next.store(run + times.rest.load(std::memory_order_relaxed), std::memory_order_relaxed);
    return !better;
  }

  void learn(bool asleep, bool alone, double seconds) {
    Times& times = times_[asleep];
    const bool before = times.better();
    std::atomic<double>& mean = alone ? times.alone : times.team;
    const double old = mean.load(std::memory_order_relaxed);
    // A run that something else held up is no lesson: it counts at most double.
    mean.store(old == 0 ? seconds : old + (std::min(seconds, 2 * old) - old) * kWeight, std::memory_order_relaxed);
    const bool after = times.better();
    if (alone == after) return;  // what is usual
    const unsigned rest = times.rest.load(std::memory_order_relaxed);
    times.rest.store(after == before ? std::min(rest * 2, kMostRest) : kRest, std::memory_order_relaxed);
  }

 private:
  static constexpr double kShort = 2e-3;  // seconds: in longer runs the system moves threads to free cores
  static constexpr double kWeight = 0.25;
  static constexpr unsigned kFirst = 8, kRest = 32, kMostRest = 4096;  // runs

  struct Times {
    bool better() const {  // alone
      return alone.load(std::memory_order_relaxed) < team.load(std::memory_order_relaxed);
    }

    std::atomic<unsigned> runs{0}, next{kFirst}, rest{kRest};
    std::atomic<double> team{0}, alone{0};  // running means of seconds; 0: not known
  };

  Times times_[2];
};

}  // namespace ngraph_mxnet

// Which is faster lately: a whole team, or one thread.
#pragma once

#include <algorithm>
#include <atomic>

namespace ngraph_mxnet {

// To wake a thread takes longer than a short run; where other threads of the process spin (MXNet's own, after each of
// its parallel loops), or other processes are busy, the second thread of a team may get a core late. No result depends
// on the team, so both are tried now and again, and rarely where one keeps winning. Runs that find the team's threads
// asleep and those that find them awake are told apart. Any number of threads may ask and tell at once: what they lose
// of each other only delays.
class TeamChoice {
 public:
  // True if the next run should be on one thread.
  bool alone(bool asleep) {
    Times& times = times_[asleep];
    if (times.is_long()) return false;
    const unsigned run = times.runs.fetch_add(1, std::memory_order_relaxed);
    if (run < kFirst) return run % 2 == 1;
    const bool better = times.better();
    if (run < times.next.load(std::memory_order_relaxed)) return better;
    times.next.store(run + times.rest.load(std::memory_order_relaxed), std::memory_order_relaxed);
    return !better;
  }

  // True if most runs are on one thread, as far as is known.
  bool mostly_alone() const {
    const bool asleep = times_[1].runs.load(std::memory_order_relaxed) > times_[0].runs.load(std::memory_order_relaxed);
    const Times& times = times_[asleep];
    return times.runs.load(std::memory_order_relaxed) >= kFirst && !times.is_long() && times.better();
  }

  void learn(bool asleep, bool alone, double seconds) {
    Times& times = times_[asleep];
    const bool before = times.better();
    std::atomic<double>& mean = alone ? times.alone : times.team;
    const double old = mean.load(std::memory_order_relaxed);
    const unsigned runs = times.runs.load(std::memory_order_relaxed);
    const bool tried = alone != before;
    // One run in hundreds that waits for a thread without a core decides the rate, so what is usual has a long memory;
    // the system's longest pauses do not, nor what came between a single try. Of the first runs, which find nothing in
    // the caches and threads that are not there yet, the best counts, and so it does of the first tries: what still ran
    // beside the first runs (another model's threads) may be gone.
    const double most = (tried ? kOddTry : kOddRun) * old;
    const double next = old + (std::min(seconds, most) - old) * (tried ? kWeightOfTry : kWeightOfRun);
    const bool best = runs <= kFirst || (tried && runs <= kEarly && seconds < old);
    mean.store(old == 0 ? seconds : best ? std::min(old, seconds) : next, std::memory_order_relaxed);
    const bool after = times.better();
    if (alone == after || runs <= kFirst) return;  // what is usual
    // The choice that lost is tried again more and more rarely, and never for more than a hundredth of all time.
    const unsigned rest = after == before ? std::min(2 * times.rest.load(std::memory_order_relaxed), kMostRest) : kRest;
    times.rest.store(rest, std::memory_order_relaxed);
    const double usual = (after ? times.alone : times.team).load(std::memory_order_relaxed);
    const double least = std::min(100 * seconds / std::max(usual, 1e-9), 1e6);
    times.next.store(runs + std::max(rest, static_cast<unsigned>(least)), std::memory_order_relaxed);
  }

 private:
  // Seconds on one thread, above which the team is always right; and on the team, above which nobody need try.
  static constexpr double kShort = 2e-3, kLong = 2e-2;
  static constexpr double kWeightOfTry = 0.25, kWeightOfRun = 1.0 / 512, kOddTry = 4, kOddRun = 32, kWorthIt = 1.25;
  static constexpr unsigned kFirst = 8, kEarly = 256, kRest = 32, kMostRest = 4096;  // runs

  struct Times {
    // The team is right, whatever one thread takes.
    bool is_long() const {
      return alone.load(std::memory_order_relaxed) > kShort || team.load(std::memory_order_relaxed) > kLong;
    }

    // Alone. Several cores for a little less time are better left to others.
    bool better() const {
      return alone.load(std::memory_order_relaxed) < kWorthIt * team.load(std::memory_order_relaxed);
    }

    std::atomic<unsigned> runs{0}, next{kFirst}, rest{kRest};
    std::atomic<double> team{0}, alone{0};  // running means of seconds; 0: not known
  };

  Times times_[2];
};

}  // namespace ngraph_mxnet

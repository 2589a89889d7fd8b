// Which is faster lately: a whole team, or one thread.
#pragma once

#include <atomic>

namespace ngraph_mxnet {

// Where other threads of the process spin (MXNet's own, after each of its parallel loops), the second thread of a team may
// get a core late, and a short run waits for it longer than the run would take alone. No result depends on the team, so both
// are tried now and again. Any number of threads may ask and tell at once: what they lose of each other only delays.
class TeamChoice {
 public:
  // Whether the next run should be on one thread.
  bool alone() {
    const unsigned run = runs_.fetch_add(1, std::memory_order_relaxed);
    if (team_.load(std::memory_order_relaxed) > kShort) return false;
    if (run < kFirst) return run % 2 == 1;
    const bool better = alone_.load(std::memory_order_relaxed) < team_.load(std::memory_order_relaxed);
    return run % kTry == 0 ? !better : better;
  }

  void learn(bool alone, double seconds) {
    std::atomic<double>& mean = alone ? alone_ : team_;
    const double before = mean.load(std::memory_order_relaxed);
    mean.store(before == 0 ? seconds : before + (seconds - before) * kWeight, std::memory_order_relaxed);
  }

 private:
  static constexpr double kShort = 2e-3;  // seconds: in longer runs the system moves threads to free cores
  static constexpr double kWeight = 0.25;
  static constexpr unsigned kFirst = 8, kTry = 32;

  std::atomic<unsigned> runs_{0};
  std::atomic<double> team_{0}, alone_{0};  // running means of seconds; 0: not known
};

}  // namespace ngraph_mxnet

// The connections of a rank to rank 0, or of rank 0 to all, what is known by them, and the thread that looks after them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <poll.h>

#include "distributed/descriptor.h"
#include "distributed/line_socket.h"

namespace ngraph_mxnet {

struct PeerFailure {
  int rank;
  std::string host, text;
};

struct PeerJob {
  int rank;
  std::vector<std::string> hosts;  // of each rank
  std::string token;               // a word; who does not know it is no rank of the job
};

// Seconds.
struct PeerLimits {
  double silence;  // without a sign of life, after which a rank has failed
  double grace;    // from a failure to the end of a process whose program does not take it; may be infinite
};

// Lines from rank 0: `started`, `alive`, `left RANK STEPS`, `failed RANK TEXT`; to it: `hello TOKEN RANK`,
// `alive STEP`, `waits STEP`, `left STEPS`, `failed TEXT`.
class PeerChannel {
 public:
  // See PeerWatch, which has functions of the same names.
  PeerChannel(PeerJob job, int socket, PeerLimits limits);
  void fail(const std::string& why);
  void step(std::int64_t number, bool waits);
  void leave(std::optional<std::int64_t> steps);
  bool has_failed() const { return failed_; }
  std::optional<PeerFailure> failure() const;
  int failure_descriptor() const { return failure_event_.number(); }
  void take_failure();
  void limit_end();
  std::vector<int> missing() const;
  void tell_of_sigterm();

  // Waits until the condition is true, for at most `seconds` and at most an hour. Returns at once on a failure. Returns
  // whether the condition is true. The condition is called with the lock.
  template <class Condition>
  bool wait(double seconds, Condition condition) const {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(seconds < kLongestWait ? seconds : kLongestWait),
                      [&] { return failure_.has_value() || condition(); });
    return condition();
  }
  bool has_started() const { return started_; }
  bool is_over() const { return is_over_; }

  // Runs the thread's loop until `stop` is called. `stop` waits for the end of the loop.
  void run();
  void stop();

 private:
  static constexpr double kLongestWait = 3600;

  struct Peer {
    std::optional<LineSocket> socket;
    double heard = 0;
    std::int64_t place = 0;  // as `place_`
    std::optional<std::int64_t> left;
  };
  struct Stranger {
    LineSocket socket;
    double since;
    bool is_gone = false;
  };

  // All these are called with the lock.
  std::string name_of(std::size_t rank) const;
  void relay(const std::string& line);
  void learn(std::size_t rank, const std::string& text, bool of_own_program = false);
  void fail_here(const std::string& what);
  std::vector<std::size_t> list_sockets(std::vector<pollfd>* polled) const;
  void exchange(const std::vector<pollfd>& polled, const std::vector<std::size_t>& ranks, double time);
  void accept_stranger(double time);
  void greet(Stranger* stranger, double time);
  void start_when_complete();
  void receive(std::size_t rank, double time);
  void handle_of_rank(std::size_t rank, const std::string& line);
  void handle_of_hub(const std::string& line);
  std::string foreign(std::size_t rank, const std::string& line) const;
  void lose(std::size_t rank);
  void forgive(double seconds, double time);
  void beat(double time);
  bool is_expected(std::size_t rank) const;
  bool all_left() const;
  void judge(double time);
  void judge_steps();
  void finish_when_all_left(double time);
  void answer_sigterm(double time);

  const Event wake_, failure_event_;
  Descriptor listener_;
  const std::size_t rank_;
  const std::vector<std::string> hosts_;
  const std::string token_;
  const PeerLimits limits_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Peer> peers_;  // the own one, too, without a connection
  std::vector<Stranger> strangers_;
  std::optional<PeerFailure> failure_;
  double ends_at_ = std::numeric_limits<double>::infinity();
  double beaten_ = 0, sigterm_since_ = 0, all_left_since_ = 0;
  bool started_ = false, is_leaving_ = false, is_over_ = false, is_stopped_ = false, is_finished_ = false;
  // Twice the step, and one if the rank waits in it: so that both are read at once.
  std::atomic<std::int64_t> place_{0};
  std::atomic<std::int64_t> last_waited_{0};
  std::atomic<bool> failed_{false}, sigterm_{false}, sigterm_told_{false};
};

}  // namespace ngraph_mxnet

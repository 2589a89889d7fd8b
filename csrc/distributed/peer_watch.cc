// How each rank of a job learns within seconds that another has failed, over connections of its own: rank 0 listens,
// all others connect to it, and it relays. A thread speaks for the rank; it needs no lock of Python's, so a rank that
// computes for long is alive, and one that is stopped or gone is not. And how a rank's process ends: what it still says
// when SIGTERM ends it, and with which status it exits after a failure.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>
#include <pybind11/stl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/fork_safety.h"
#include "core/python_runtime.h"
#include "distributed/line_socket.h"

namespace py = pybind11;

namespace ngraph_mxnet {
namespace {

// Seconds.
constexpr double kHeartbeat = 0.5;
constexpr double kTick = 0.25;            // how much later than its limit silence is seen at most
constexpr double kEndingTick = 0.02;
constexpr double kOwnDelay = 1.0;         // a thread that did not run for longer can't blame others for it
constexpr double kTokenWithin = 5.0;      // of a stranger's connection
constexpr double kReasonOfSigterm = 0.3;  // a launcher ends all ranks when one has failed: why may come later than that
constexpr double kLastWords = 2.0;        // until all others know that all have left

constexpr std::size_t kMostStrangers = 64;  // beside the ranks
constexpr std::size_t kLongestText = 2000;  // so that a line to stderr is one write

constexpr double kNever = std::numeric_limits<double>::infinity();

// One line, cut where no character of UTF-8 is.
std::string one_line(std::string text) {
  for (char& each : text) {
    if (static_cast<unsigned char>(each) < ' ') each = ' ';
  }
  if (text.size() <= kLongestText) return text;
  std::size_t end = kLongestText - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

// Not for ever: whoever reads stderr may be stopped.
void print(const std::string& line) {
  pollfd out{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&out, 1, 100) > 0) [[maybe_unused]]
    const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

std::string rest_of(std::istringstream& words) {
  std::string text;
  std::getline(words >> std::ws, text);
  return text;
}

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
  // Takes over the socket: on rank 0 a listening one, on others a connection to it.
  PeerChannel(PeerJob job, int socket, PeerLimits limits)
      : listener_(job.rank == 0 ? socket : -1), rank_(static_cast<std::size_t>(job.rank)), hosts_(std::move(job.hosts)),
        token_(std::move(job.token)), limits_(limits), peers_(hosts_.size()) {
    if (rank_ == 0) {
      unblock(socket);  // who wanted to connect may be gone again
    } else {
      peers_[0].socket.emplace(socket);
      peers_[0].socket->send("hello " + token_ + " " + std::to_string(rank_));
      peers_[0].heard = now();
    }
    start_when_complete();
  }

  // This rank has failed, which all others are told unless a failure is known. `why` need not name the rank.
  void fail(const std::string& why) {
    const std::lock_guard<std::mutex> lock(mutex_);
    fail_here("failed: " + why);
  }

  // This rank is in this step, and waits for the others in it or does not.
  void step(std::int64_t number, bool waits) {
    place_ = 2 * number + waits;
    if (waits) last_waited_ = number;
  }

  // This rank has ended well, after so many steps, or the last one in which it waited.
  void leave(std::optional<std::int64_t> steps) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_leaving_) return;
    is_leaving_ = true;
    const std::string count = std::to_string(steps.value_or(last_waited_));
    if (rank_ == 0) {
      handle_of_rank(0, "left " + count);
    } else if (peers_[0].socket) {
      peers_[0].socket->send("left " + count);  // which comes back as to all others
    }
    wake_.set();
  }

  bool has_failed() const { return failed_; }
  // The first that was learnt.
  std::optional<PeerFailure> failure() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failure_;
  }

  // Becomes readable at a failure, for poll.
  int failure_descriptor() const { return failure_event_.number(); }
  // The program has the failure, as an exception: the process goes on.
  void take_failure() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_at_ = kNever;
  }

  // The process is to end by itself now: after the time of grace it is ended.
  void limit_end() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_at_ = now() + limits_.grace;
    wake_.set();
  }

  // On rank 0: the ranks that are not connected yet.
  std::vector<int> missing() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<int> ranks;
    for (std::size_t rank = 1; rank < peers_.size() && !started_; ++rank) {
      if (!peers_[rank].socket) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }

  // For a signal's handler: this rank is being ended by SIGTERM. Returns when what is known is told, or after half a
  // second.
  void tell_of_sigterm() {
    sigterm_ = true;
    wake_.set();
    const timespec pause{0, 10'000'000};
    for (int i = 0; i < 50 && !sigterm_told_; ++i) ::nanosleep(&pause, nullptr);
  }

  // Waits until the condition is true, for at most `seconds` and at most an hour. Returns at once on a failure. Returns
  // whether the condition is true. The condition is called with the lock.
  template <class Condition>
  bool wait(double seconds, Condition condition) const {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(seconds < 3600.0 ? seconds : 3600.0),
                      [&] { return failure_.has_value() || condition(); });
    return condition();
  }
  bool has_started() const { return started_; }
  bool is_over() const { return is_over_; }

  // Runs the thread's loop until `stop` is called. `stop` waits for the end of the loop.
  void run() {
    double last = now();
    std::vector<pollfd> polled;
    std::unique_lock<std::mutex> lock(mutex_);
    while (!is_stopped_) {
      const std::vector<std::size_t> ranks = list_sockets(&polled);
      const double tick = sigterm_ || ends_at_ < kNever ? kEndingTick : kTick;
      lock.unlock();
      ::poll(polled.data(), polled.size(), static_cast<int>(1000 * tick));
      lock.lock();
      const double time = now();
      wake_.clear();
      exchange(polled, ranks, time);
      if (time - last > kOwnDelay) forgive(time - last - kOwnDelay, time);
      last = time;
      beat(time);
      judge(time);
      finish_when_all_left(time);
      answer_sigterm(time);
      if (time >= ends_at_) ::_exit(1);
    }
    peers_.clear();
    strangers_.clear();
    listener_ = Descriptor(-1);
    is_finished_ = true;
    changed_.notify_all();
  }

  void stop() {
    std::unique_lock<std::mutex> lock(mutex_);
    is_stopped_ = true;
    wake_.set();
    changed_.wait(lock, [this] { return is_finished_; });
  }

 private:
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
  std::string name_of(std::size_t rank) const { return "rank " + std::to_string(rank) + " (" + hosts_[rank] + ")"; }
  void relay(const std::string& line) {
    for (Peer& peer : peers_) {
      if (peer.socket) peer.socket->send(line);
    }
  }

  // `text` is a sentence that names the rank. One's own failure is nothing that one has to be told.
  void learn(std::size_t rank, const std::string& text, bool of_own_program = false) {
    if (failure_) return;
    failure_ = PeerFailure{static_cast<int>(rank), hosts_[rank], one_line(text)};
    failed_ = true;
    if (rank_ == 0) relay("failed " + std::to_string(rank) + " " + failure_->text);
    if (!of_own_program) {
      ends_at_ = now() + limits_.grace;
      print("ngraph_mxnet: rank " + std::to_string(rank_) + " of " + std::to_string(hosts_.size()) + " (" +
            hosts_[rank_] + "): " + failure_->text + "\n");
    }
    failure_event_.set();
    changed_.notify_all();
  }

  void fail_here(const std::string& what) {
    if (failure_) return;
    learn(rank_, name_of(rank_) + " " + what, true);
    if (rank_ != 0 && peers_[0].socket) peers_[0].socket->send("failed " + failure_->text);
  }

  // The wake-up, the listener, the connections of ranks, whose numbers are returned, and those of strangers.
  std::vector<std::size_t> list_sockets(std::vector<pollfd>* polled) const {
    const bool is_crowded = strangers_.size() >= kMostStrangers + peers_.size();
    *polled = {{wake_.number(), POLLIN, 0}, {is_crowded ? -1 : listener_.number(), POLLIN, 0}};
    const auto add = [polled](const LineSocket& socket) {
      polled->push_back({socket.descriptor(), static_cast<short>(socket.has_unsent() ? POLLIN | POLLOUT : POLLIN), 0});
    };
    std::vector<std::size_t> ranks;
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      if (!peers_[rank].socket) continue;
      add(*peers_[rank].socket);
      ranks.push_back(rank);
    }
    for (const Stranger& stranger : strangers_) add(stranger.socket);
    return ranks;
  }

  void exchange(const std::vector<pollfd>& polled, const std::vector<std::size_t>& ranks, double time) {
    const pollfd* next = &polled[2];
    for (std::size_t rank : ranks) {
      const short events = (next++)->revents;
      if (events & POLLOUT) peers_[rank].socket->flush();
      if (events & ~POLLOUT) receive(rank, time);
    }
    for (Stranger& stranger : strangers_) {
      if ((next++)->revents) greet(&stranger, time);
      if (time - stranger.since > kTokenWithin) stranger.is_gone = true;
    }
    strangers_.erase(std::remove_if(strangers_.begin(), strangers_.end(), [](const Stranger& s) { return s.is_gone; }),
                     strangers_.end());
    if (polled[1].revents) accept_stranger(time);
    start_when_complete();
  }

  void accept_stranger(double time) {
    const int socket = ::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC);
    if (socket >= 0) strangers_.push_back({LineSocket(socket), time});
  }

  // Its first line makes it a rank, or it is sent away.
  void greet(Stranger* stranger, double time) {
    std::vector<std::string> lines;
    const bool is_open = stranger->socket.receive(&lines);
    if (lines.empty() && is_open) return;
    stranger->is_gone = true;
    std::istringstream words(lines.empty() ? "" : lines[0]);
    std::string kind, token;
    std::size_t rank = 0;
    const bool is_rank = words >> kind >> token >> rank && kind == "hello" && token == token_ && rank >= 1 &&
                         rank < peers_.size() && peers_[rank].heard == 0;
    if (!is_rank) return;
    peers_[rank].socket.emplace(std::move(stranger->socket));
    peers_[rank].heard = time;
    if (failure_) peers_[rank].socket->send("failed " + std::to_string(failure_->rank) + " " + failure_->text);
    for (std::size_t i = 1; i < lines.size(); ++i) handle_of_rank(rank, lines[i]);
    if (!is_open) lose(rank);
  }

  void start_when_complete() {
    if (rank_ != 0 || started_) return;
    if (!std::all_of(peers_.begin() + 1, peers_.end(), [](const Peer& peer) { return peer.heard > 0; })) return;
    started_ = true;
    listener_ = Descriptor(-1);
    strangers_.clear();
    relay("started");
    changed_.notify_all();
  }

  void receive(std::size_t rank, double time) {
    std::vector<std::string> lines;
    const bool is_open = peers_[rank].socket->receive(&lines);
    if (!lines.empty()) peers_[rank].heard = time;
    for (const std::string& line : lines) rank_ == 0 ? handle_of_rank(rank, line) : handle_of_hub(line);
    if (!is_open) lose(rank);
  }

  void handle_of_rank(std::size_t rank, const std::string& line) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    std::int64_t number = 0;
    if (kind == "failed") {
      learn(rank, rest_of(words));
    } else if ((kind == "alive" || kind == "waits") && words >> number) {
      peers_[rank].place = 2 * number + (kind == "waits");
    } else if (kind == "left" && words >> number) {
      peers_[rank].left = number;
      relay("left " + std::to_string(rank) + " " + std::to_string(number));
    } else {
      learn(rank, foreign(rank, line));
    }
  }

  void handle_of_hub(const std::string& line) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    std::size_t rank = 0;
    std::int64_t number = 0;
    if (kind == "started") {
      started_ = true;
      changed_.notify_all();
    } else if (kind == "failed" && words >> rank && rank < peers_.size()) {
      learn(rank, rest_of(words));
    } else if (kind == "left" && words >> rank >> number && rank < peers_.size()) {
      peers_[rank].left = number;
    } else if (kind != "alive") {
      learn(0, foreign(0, line));
    }
  }

  std::string foreign(std::size_t rank, const std::string& line) const {
    return name_of(rank) + " says \"" + line.substr(0, 80) +
           "\", which this version of ngraph_mxnet does not know: install the same one on all machines";
  }

  void lose(std::size_t rank) {
    peers_[rank].socket.reset();
    if (!is_expected(rank)) return;
    learn(rank, name_of(rank) +
                    " has ended without a word: it was killed, has crashed, or called os._exit; look at its output "
                    "and at the system's log on its machine, which tells when memory ran out");
  }

  // So many seconds in which nobody could be heard.
  void forgive(double seconds, double time) {
    for (Peer& peer : peers_) {
      if (peer.heard > 0) peer.heard = std::min(peer.heard + seconds, time);
    }
  }

  void beat(double time) {
    const std::int64_t place = place_;
    peers_[rank_].place = place;
    if (time - beaten_ < kHeartbeat) return;
    beaten_ = time;
    const std::string line = rank_ == 0 ? "alive" : (place % 2 ? "waits " : "alive ") + std::to_string(place / 2);
    for (Peer& peer : peers_) {
      // A peer that has not taken its last line gets no other: the lines would only pile up.
      if (peer.socket && !peer.socket->has_unsent()) peer.socket->send(line);
    }
  }

  // Rank 0 is needed until all have left, others until they have.
  bool is_expected(std::size_t rank) const { return rank == 0 ? !all_left() : !peers_[rank].left; }

  bool all_left() const {
    return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.left.has_value(); });
  }

  void judge(double time) {
    if (failure_) return;
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      const Peer& peer = peers_[rank];
      if (!peer.socket || time - peer.heard <= limits_.silence || !is_expected(rank)) continue;
      std::ostringstream text;
      text << name_of(rank) << " has given no sign of life for " << limits_.silence
           << " s: it is stopped, or its machine can't be reached; look there, and start the job again from its last "
              "checkpoint";
      return learn(rank, text.str());
    }
    if (rank_ == 0) judge_steps();
  }

  // Nobody can finish a step that another rank never comes to.
  void judge_steps() {
    const auto steps_of = [](const Peer& peer) { return peer.left.value_or(std::numeric_limits<std::int64_t>::max()); };
    const auto first = std::min_element(peers_.begin(), peers_.end(),
                                        [&](const Peer& a, const Peer& b) { return steps_of(a) < steps_of(b); });
    const std::int64_t steps = steps_of(*first);
    const auto waiting = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& peer) {
      return !peer.left && peer.place % 2 != 0 && peer.place / 2 > steps;
    });
    if (waiting == peers_.end()) return;
    const std::size_t early = first - peers_.begin(), late = waiting - peers_.begin();
    learn(early, name_of(early) + " ended after " + std::to_string(steps) + (steps == 1 ? " step" : " steps") +
                     ", and " + name_of(late) + " waits for it in step " + std::to_string(waiting->place / 2) +
                     ": give all ranks the same number of batches");
  }

  void finish_when_all_left(double time) {
    if (is_over_ || failure_ || !all_left()) return;
    if (rank_ != 0) peers_[0].socket.reset();  // by which rank 0 knows that this one knows
    if (all_left_since_ == 0) all_left_since_ = time;
    const bool all_know =
        std::none_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.socket.has_value(); });
    if (!all_know && time - all_left_since_ < kLastWords) return;
    is_over_ = true;
    changed_.notify_all();
  }

  void answer_sigterm(double time) {
    if (!sigterm_ || sigterm_told_) return;
    if (sigterm_since_ == 0) sigterm_since_ = time;
    const bool is_news = !failure_ && !is_leaving_;
    if (is_news && time - sigterm_since_ < kReasonOfSigterm) return;
    if (is_news) fail_here("was ended by SIGTERM: by its launcher, its scheduler or a person");
    sigterm_told_ = true;
  }

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

// With all signals blocked: they are the program's, and a handler that waits for this thread must not run on it.
void start_thread(std::shared_ptr<PeerChannel> channel) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([channel = std::move(channel)] { channel->run(); }).detach();
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// A channel with its thread. In a forked child, which is no rank, there is never a failure, and what is told goes
// nowhere.
class PeerWatch {
 public:
  PeerWatch(int rank, std::vector<std::string> hosts, std::string token, int socket, double silence, double grace) {
    if (rank < 0 || static_cast<std::size_t>(rank) >= hosts.size()) {
      throw std::invalid_argument("rank " + std::to_string(rank) + " of " + std::to_string(hosts.size()) + " ranks");
    }
    channel_ = std::make_shared<PeerChannel>(PeerJob{rank, std::move(hosts), std::move(token)}, socket,
                                             PeerLimits{silence, grace});
    start_thread(channel_);
  }
  // To the other ranks this one has then ended, and failed unless all have left.
  ~PeerWatch() {
    if (is_inherited()) {
      new std::shared_ptr<PeerChannel>(std::move(channel_));  // its mutex and descriptors are the parent's
    } else {
      channel_->stop();
    }
  }
  PeerWatch(const PeerWatch&) = delete;

  bool is_inherited() const { return generation_ != fork_generation(); }
  bool has_failed() const { return !is_inherited() && channel_->has_failed(); }
  PeerChannel& channel() const { return *channel_; }

 private:
  std::shared_ptr<PeerChannel> channel_;
  const std::uint64_t generation_ = fork_generation();
};

// ---- the end of the process --------------------------------------------------------------------------------

// Not destroyed at the process's end, until which its thread is needed.
std::shared_ptr<PeerWatch>& kept() {
  static auto* const watch = new std::shared_ptr<PeerWatch>;
  return *watch;
}
std::atomic<PeerWatch*> guarded{nullptr};

void on_sigterm(int signal) {
  const int error = errno;
  if (PeerWatch* const watch = guarded; watch != nullptr && !watch->is_inherited()) watch->channel().tell_of_sigterm();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
  errno = error;
}

bool is_handled_by(void (*handler)(int)) {
  struct sigaction now;
  return ::sigaction(SIGTERM, nullptr, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == handler;
}

// From now on SIGTERM ends the process only when this watch has said what it knows, unless the program has a handler of
// its own. One watch at a time, the latest.
void guard_process(std::shared_ptr<PeerWatch> watch) {
  guarded = watch.get();
  kept() = std::move(watch);
  if (!is_handled_by(SIG_DFL)) return;
  struct sigaction ours {};
  ours.sa_handler = on_sigterm;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(SIGTERM, &ours, nullptr);
}

void unguard_process() {
  if (is_handled_by(on_sigterm)) ::signal(SIGTERM, SIG_DFL);
  guarded = nullptr;
  kept().reset();
}

// The process in which success is forbidden; 0: none.
std::atomic<pid_t> forbidden{0};

void on_end(int status, void*) {
  if (status != 0 || forbidden != ::getpid()) return;
  std::fflush(nullptr);
  ::_exit(EXIT_FAILURE);
}

void forbid_success() {
  if (forbidden.exchange(::getpid()) == 0) ::on_exit(on_end, nullptr);
}

// ---- for Python --------------------------------------------------------------------------------------------

// A function that tells the channel something, unless it is the parent's.
template <class... Arguments>
auto told(void (PeerChannel::*function)(Arguments...)) {
  return [function](const PeerWatch& watch, Arguments... arguments) {
    if (!watch.is_inherited()) (watch.channel().*function)(arguments...);
  };
}

// A function that waits for so many seconds; what it returns in a forked child.
auto waits_for(bool (PeerChannel::*condition)() const, bool in_child) {
  return [=](const PeerWatch& watch, double seconds) {
    if (watch.is_inherited()) return in_child;
    const PeerChannel& channel = watch.channel();
    return channel.wait(seconds, [&] { return (channel.*condition)(); });
  };
}

// Another rank's bytes need not be UTF-8.
py::object text(const std::string& bytes) {
  return py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<py::ssize_t>(bytes.size()), "replace"));
}

py::object failure(const PeerWatch& watch) {
  const auto found = watch.has_failed() ? watch.channel().failure() : std::nullopt;
  if (!found) return py::none();
  return py::make_tuple(found->rank, text(found->host), text(found->text));
}

}  // namespace

void define_peer_watch(py::module_& m) {
  using Released = py::call_guard<GilReleased>;
  py::class_<PeerWatch, std::shared_ptr<PeerWatch>>(m, "PeerWatch",
                                                    "A rank's watch on the others; see csrc/distributed.")
      .def(py::init<int, std::vector<std::string>, std::string, int, double, double>(), py::arg("rank"),
           py::arg("hosts"), py::arg("token"), py::arg("socket"), py::arg("silence"), py::arg("grace"),
           "Takes over the socket's descriptor: on rank 0 a listening one, on others a connection to it.")
      .def_property_readonly("is_inherited", &PeerWatch::is_inherited, "Whether this is a forked child.")
      .def_property_readonly("has_failed", &PeerWatch::has_failed)
      .def("failure", &failure, "(rank, host, text), or None.")
      .def_property_readonly(
          "failure_descriptor",
          [](const PeerWatch& watch) { return watch.is_inherited() ? -1 : watch.channel().failure_descriptor(); })
      .def("take_failure", told(&PeerChannel::take_failure), Released())
      .def("limit_end", told(&PeerChannel::limit_end), Released())
      .def("fail", told(&PeerChannel::fail), py::arg("why"), Released())
      .def("step", told(&PeerChannel::step), py::arg("number"), py::arg("waits"))
      .def("leave", told(&PeerChannel::leave), py::arg("steps").none(true), Released())
      .def("wait", waits_for(&PeerChannel::has_failed, false), py::arg("seconds"), Released())
      .def("wait_for_start", waits_for(&PeerChannel::has_started, true), py::arg("seconds"), Released())
      .def("wait_for_all", waits_for(&PeerChannel::is_over, true), py::arg("seconds"), Released())
      .def(
          "missing",
          [](const PeerWatch& watch) { return watch.is_inherited() ? std::vector<int>() : watch.channel().missing(); },
          Released());
  m.def("guard_process", &guard_process, py::arg("watch"),
        "SIGTERM ends the process when the watch has said what it knows.");
  m.def("unguard_process", &unguard_process);
  m.def("forbid_success", &forbid_success, "An exit of this process with status 0 is to be one with 1.");
}

}  // namespace ngraph_mxnet

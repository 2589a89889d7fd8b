#include "distributed/peer_channel.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"

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
  if (::poll(&out, 1, 100) > 0) [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

std::string rest_of(std::istringstream& words) {
  std::string text;
  std::getline(words >> std::ws, text);
  return text;
}

}  // namespace

PeerChannel::PeerChannel(PeerJob job, int socket, PeerLimits limits)
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

// ---- what the program calls --------------------------------------------------------------------------------

void PeerChannel::fail(const std::string& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  fail_here("failed: " + why);
}

void PeerChannel::step(std::int64_t number, bool waits) {
  place_ = 2 * number + waits;
  if (waits) last_waited_ = number;
}

void PeerChannel::leave(std::optional<std::int64_t> steps) {
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

std::optional<PeerFailure> PeerChannel::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void PeerChannel::take_failure() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ends_at_ = kNever;
}

void PeerChannel::limit_end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ends_at_ = now() + limits_.grace;
  wake_.set();
}

std::vector<int> PeerChannel::missing() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int> ranks;
  for (std::size_t rank = 1; rank < peers_.size() && !started_; ++rank) {
    if (!peers_[rank].socket) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

void PeerChannel::tell_of_sigterm() {
  sigterm_ = true;
  wake_.set();
  const timespec pause{0, 10'000'000};
  for (int i = 0; i < 50 && !sigterm_told_; ++i) ::nanosleep(&pause, nullptr);
}

// ---- the thread --------------------------------------------------------------------------------------------

void PeerChannel::run() {
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

void PeerChannel::stop() {
  std::unique_lock<std::mutex> lock(mutex_);
  is_stopped_ = true;
  wake_.set();
  changed_.wait(lock, [this] { return is_finished_; });
}

// The wake-up, the listener, the connections of ranks, whose numbers are returned, and those of strangers.
std::vector<std::size_t> PeerChannel::list_sockets(std::vector<pollfd>* polled) const {
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

void PeerChannel::exchange(const std::vector<pollfd>& polled, const std::vector<std::size_t>& ranks, double time) {
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

void PeerChannel::receive(std::size_t rank, double time) {
  std::vector<std::string> lines;
  const bool is_open = peers_[rank].socket->receive(&lines);
  if (!lines.empty()) peers_[rank].heard = time;
  for (const std::string& line : lines) rank_ == 0 ? handle_of_rank(rank, line) : handle_of_hub(line);
  if (!is_open) lose(rank);
}

// ---- who takes part ----------------------------------------------------------------------------------------

void PeerChannel::accept_stranger(double time) {
  const int socket = ::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC);
  if (socket >= 0) strangers_.push_back({LineSocket(socket), time});
}

// Its first line makes it a rank, or it is sent away.
void PeerChannel::greet(Stranger* stranger, double time) {
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

void PeerChannel::start_when_complete() {
  if (rank_ != 0 || started_) return;
  if (!std::all_of(peers_.begin() + 1, peers_.end(), [](const Peer& peer) { return peer.heard > 0; })) return;
  started_ = true;
  listener_ = Descriptor(-1);
  strangers_.clear();
  relay("started");
  changed_.notify_all();
}

// ---- what is said ------------------------------------------------------------------------------------------

std::string PeerChannel::name_of(std::size_t rank) const { return "rank " + std::to_string(rank) + " (" + hosts_[rank] + ")"; }

void PeerChannel::relay(const std::string& line) {
  for (Peer& peer : peers_) {
    if (peer.socket) peer.socket->send(line);
  }
}

void PeerChannel::beat(double time) {
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

void PeerChannel::handle_of_rank(std::size_t rank, const std::string& line) {
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

void PeerChannel::handle_of_hub(const std::string& line) {
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

std::string PeerChannel::foreign(std::size_t rank, const std::string& line) const {
  return name_of(rank) + " says \"" + line.substr(0, 80) +
         "\", which this version of ngraph_mxnet does not know: install the same one on all machines";
}

void PeerChannel::finish_when_all_left(double time) {
  if (is_over_ || failure_ || !all_left()) return;
  if (rank_ != 0) peers_[0].socket.reset();  // by which rank 0 knows that this one knows
  if (all_left_since_ == 0) all_left_since_ = time;
  const bool all_know = std::none_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.socket.has_value(); });
  if (!all_know && time - all_left_since_ < kLastWords) return;
  is_over_ = true;
  changed_.notify_all();
}

// ---- failures ----------------------------------------------------------------------------------------------

// `text` is a sentence that names the rank. One's own failure is nothing that one has to be told.
void PeerChannel::learn(std::size_t rank, const std::string& text, bool of_own_program) {
  if (failure_) return;
  failure_ = PeerFailure{static_cast<int>(rank), hosts_[rank], one_line(text)};
  failed_ = true;
  if (rank_ == 0) relay("failed " + std::to_string(rank) + " " + failure_->text);
  if (!of_own_program) {
    ends_at_ = now() + limits_.grace;
    print("ngraph_mxnet: rank " + std::to_string(rank_) + " of " + std::to_string(hosts_.size()) + " (" + hosts_[rank_] +
          "): " + failure_->text + "\n");
  }
  failure_event_.set();
  changed_.notify_all();
}

void PeerChannel::fail_here(const std::string& what) {
  if (failure_) return;
  learn(rank_, name_of(rank_) + " " + what, true);
  if (rank_ != 0 && peers_[0].socket) peers_[0].socket->send("failed " + failure_->text);
}

bool PeerChannel::all_left() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.left.has_value(); });
}

// Rank 0 is needed until all have left, others until they have.
bool PeerChannel::is_expected(std::size_t rank) const { return rank == 0 ? !all_left() : !peers_[rank].left; }

void PeerChannel::lose(std::size_t rank) {
  peers_[rank].socket.reset();
  if (!is_expected(rank)) return;
  learn(rank, name_of(rank) + " has ended without a word: it was killed, has crashed, or called os._exit; look at its output "
              "and at the system's log on its machine, which tells when memory ran out");
}

// So many seconds in which nobody could be heard.
void PeerChannel::forgive(double seconds, double time) {
  for (Peer& peer : peers_) {
    if (peer.heard > 0) peer.heard = std::min(peer.heard + seconds, time);
  }
}

void PeerChannel::judge(double time) {
  if (failure_) return;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const Peer& peer = peers_[rank];
    if (!peer.socket || time - peer.heard <= limits_.silence || !is_expected(rank)) continue;
    std::ostringstream text;
    text << name_of(rank) << " has given no sign of life for " << limits_.silence
         << " s: it is stopped, or its machine can't be reached; look there, and start the job again from its last checkpoint";
    return learn(rank, text.str());
  }
  if (rank_ == 0) judge_steps();
}

// Nobody can finish a step that another rank never comes to.
void PeerChannel::judge_steps() {
  const auto steps_of = [](const Peer& peer) { return peer.left.value_or(std::numeric_limits<std::int64_t>::max()); };
  const auto first = std::min_element(peers_.begin(), peers_.end(),
                                      [&](const Peer& a, const Peer& b) { return steps_of(a) < steps_of(b); });
  const std::int64_t steps = steps_of(*first);
  const auto waiting = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    return !peer.left && peer.place % 2 != 0 && peer.place / 2 > steps;
  });
  if (waiting == peers_.end()) return;
  const std::size_t early = first - peers_.begin(), late = waiting - peers_.begin();
  learn(early, name_of(early) + " ended after " + std::to_string(steps) + (steps == 1 ? " step" : " steps") + ", and " +
                   name_of(late) + " waits for it in step " + std::to_string(waiting->place / 2) +
                   ": give all ranks the same number of batches");
}

void PeerChannel::answer_sigterm(double time) {
  if (!sigterm_ || sigterm_told_) return;
  if (sigterm_since_ == 0) sigterm_since_ = time;
  const bool is_news = !failure_ && !is_leaving_;
  if (is_news && time - sigterm_since_ < kReasonOfSigterm) return;
  if (is_news) fail_here("was ended by SIGTERM: by its launcher, its scheduler or a person");
  sigterm_told_ = true;
}

}  // namespace ngraph_mxnet

#include "distributed/peer_watch.h"

#include <csignal>
#include <thread>
#include <utility>

#include "core/fork_safety.h"

namespace ngraph_mxnet {
namespace {

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

}  // namespace

PeerWatch::PeerWatch(PeerJob job, int socket, PeerLimits limits)
    : channel_(std::make_shared<PeerChannel>(std::move(job), socket, limits)), generation_(fork_generation()) {
  start_thread(channel_);
}

PeerWatch::~PeerWatch() {
  if (is_inherited()) {
    new std::shared_ptr<PeerChannel>(std::move(channel_));  // its mutex and descriptors are the parent's
  } else {
    channel_->stop();
  }
}

bool PeerWatch::is_inherited() const { return generation_ != fork_generation(); }

std::optional<PeerFailure> PeerWatch::failure() const { return has_failed() ? channel_->failure() : std::nullopt; }

int PeerWatch::failure_descriptor() const { return is_inherited() ? -1 : channel_->failure_descriptor(); }

void PeerWatch::take_failure() {
  if (!is_inherited()) channel_->take_failure();
}

void PeerWatch::limit_end() {
  if (!is_inherited()) channel_->limit_end();
}

void PeerWatch::fail(const std::string& why) {
  if (!is_inherited()) channel_->fail(why);
}

void PeerWatch::step(std::int64_t number, bool waits) {
  if (!is_inherited()) channel_->step(number, waits);
}

void PeerWatch::leave(std::optional<std::int64_t> steps) {
  if (!is_inherited()) channel_->leave(steps);
}

bool PeerWatch::wait(double seconds) const {
  return !is_inherited() && channel_->wait(seconds, [this] { return channel_->has_failed(); });
}

bool PeerWatch::wait_for_start(double seconds) const {
  return is_inherited() || channel_->wait(seconds, [this] { return channel_->has_started(); });
}

bool PeerWatch::wait_for_all(double seconds) const {
  return is_inherited() || channel_->wait(seconds, [this] { return channel_->is_over(); });
}

std::vector<int> PeerWatch::missing() const { return is_inherited() ? std::vector<int>() : channel_->missing(); }

void PeerWatch::tell_of_sigterm() {
  if (!is_inherited()) channel_->tell_of_sigterm();
}

}  // namespace ngraph_mxnet

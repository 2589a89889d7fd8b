#include "distributed/peer_guard.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <unistd.h>

namespace ngraph_mxnet::peer_guard {
namespace {

// Not destroyed at the process's end, until which its thread is needed.
std::shared_ptr<PeerWatch>& kept() {
  static auto* const watch = new std::shared_ptr<PeerWatch>;
  return *watch;
}
std::atomic<PeerWatch*> guarded{nullptr};

void on_sigterm(int signal) {
  const int error = errno;
  if (PeerWatch* const watch = guarded; watch != nullptr) watch->tell_of_sigterm();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
  errno = error;
}

bool is_handled_by(void (*handler)(int)) {
  struct sigaction now;
  return ::sigaction(SIGTERM, nullptr, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == handler;
}

// The process in which success is forbidden; 0: none.
std::atomic<pid_t> forbidden{0};

void on_end(int status, void*) {
  if (status != 0 || forbidden != ::getpid()) return;
  std::fflush(nullptr);
  ::_exit(EXIT_FAILURE);
}

}  // namespace

void set(std::shared_ptr<PeerWatch> watch) {
  guarded = watch.get();
  kept() = std::move(watch);
  if (!is_handled_by(SIG_DFL)) return;
  struct sigaction ours {};
  ours.sa_handler = on_sigterm;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(SIGTERM, &ours, nullptr);
}

void clear() {
  if (is_handled_by(on_sigterm)) ::signal(SIGTERM, SIG_DFL);
  guarded = nullptr;
  kept().reset();
}

void forbid_success() {
  if (forbidden.exchange(::getpid()) == 0) ::on_exit(on_end, nullptr);
}

}  // namespace ngraph_mxnet::peer_guard

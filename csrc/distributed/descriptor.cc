#include "distributed/descriptor.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace ngraph_mxnet {
namespace {

// By number; beyond these a child inherits. No lock, for a fork does not wait for a thread that opens a socket.
std::array<std::atomic<bool>, 1 << 16> owned;

void set_owned(int number, bool value) {
  if (number >= 0 && static_cast<std::size_t>(number) < owned.size()) owned[number] = value;
}

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] {
  for (std::size_t number = 0; number < owned.size(); ++number) {
    if (owned[number].exchange(false, std::memory_order_relaxed)) ::close(static_cast<int>(number));
  }
});

int new_event() {
  const int number = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (number < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  return number;
}

}  // namespace

Descriptor::Descriptor(int number) : number_(number) { set_owned(number, true); }

Descriptor::~Descriptor() {
  if (number_ < 0) return;
  set_owned(number_, false);
  ::close(number_);
}

Event::Event() : descriptor_(new_event()) {}

void Event::set() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(number(), &one, sizeof one);
}

void Event::clear() const {
  std::uint64_t count;
  [[maybe_unused]] const ssize_t read = ::read(number(), &count, sizeof count);
}

}  // namespace ngraph_mxnet

#include "distributed/line_socket.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
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

namespace {

constexpr std::size_t kLongestLine = 8192;

}  // namespace

void unblock(int socket) { ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK); }

LineSocket::LineSocket(int socket) : descriptor_(socket) {
  unblock(socket);
  const int at_once = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
}

void LineSocket::send(std::string_view line) {
  unsent_.append(line);
  unsent_ += '\n';
  flush();
}

void LineSocket::flush() {
  while (!unsent_.empty()) {
    const ssize_t sent = ::send(descriptor(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return;  // full; an error also ends `receive`
    unsent_.erase(0, static_cast<std::size_t>(sent));
  }
}

bool LineSocket::receive(std::vector<std::string>* lines) {
  char part[4096];
  const ssize_t count = ::recv(descriptor(), part, sizeof part, 0);
  if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  if (count == 0) return false;
  received_.append(part, static_cast<std::size_t>(count));
  std::size_t begin = 0;
  for (std::size_t end; (end = received_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines->push_back(received_.substr(begin, end - begin));
  }
  received_.erase(0, begin);
  return received_.size() <= kLongestLine;
}

}  // namespace ngraph_mxnet

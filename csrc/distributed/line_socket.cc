#include "distributed/line_socket.h"

#include <cerrno>
#include <cstddef>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace ngraph_mxnet {
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

// Lines of text between processes, over descriptors that a forked child does not keep open.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ngraph_mxnet {

// Closed when its owner goes, and in every forked child at once: a child that kept a connection open would hide that
// its parent has ended.
class Descriptor {
 public:
  explicit Descriptor(int number);
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();

  int number() const { return number_; }

 private:
  int number_;
};

// An event that `poll` can wait for: readable from `set` to `clear`. Both functions may be called in a signal's
// handler.
class Event {
 public:
  Event();  // throws std::system_error
  void set() const;
  void clear() const;
  int number() const { return descriptor_.number(); }

 private:
  Descriptor descriptor_;
};

// From now on nobody waits in a call for this socket.
void unblock(int socket);

// A connected TCP socket, which neither side waits for.
class LineSocket {
 public:
  explicit LineSocket(int socket);

  int descriptor() const { return descriptor_.number(); }
  bool has_unsent() const { return !unsent_.empty(); }

  // Sends the line, and keeps for `flush` what the connection does not take now.
  void send(std::string_view line);
  void flush();

  // Adds the whole lines that have come. False: the connection is at its end, or brings a line that is too long.
  bool receive(std::vector<std::string>* lines);

 private:
  Descriptor descriptor_;
  std::string unsent_, received_;
};

}  // namespace ngraph_mxnet

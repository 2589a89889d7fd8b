// File descriptors that a forked child does not keep open.
#pragma once

#include <utility>

namespace ngraph_mxnet {

// Closed when its owner goes, and in every forked child at once: a child that kept a connection open would hide that its
// parent has ended.
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

// An event that `poll` can wait for: readable from `set` to `clear`. Both functions may be called in a signal's handler.
class Event {
 public:
  Event();  // throws std::system_error
  void set() const;
  void clear() const;
  int number() const { return descriptor_.number(); }

 private:
  Descriptor descriptor_;
};

}  // namespace ngraph_mxnet

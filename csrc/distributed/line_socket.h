// Lines of text between processes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "distributed/descriptor.h"

namespace ngraph_mxnet {

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

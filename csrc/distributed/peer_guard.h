// How a rank's process ends: what it still says when SIGTERM ends it, and with which status it exits after a failure.
#pragma once

#include <memory>

#include "distributed/peer_watch.h"

namespace ngraph_mxnet::peer_guard {

// From now on SIGTERM ends the process only when this watch has said what it knows, unless the program has a handler of
// its own. One watch at a time, the latest.
void set(std::shared_ptr<PeerWatch> watch);
void clear();

// If this process exits with status 0, it is to be 1.
void forbid_success();

}  // namespace ngraph_mxnet::peer_guard

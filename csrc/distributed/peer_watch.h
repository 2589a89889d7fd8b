// How each rank of a job learns within seconds that another has failed, over connections of its own: rank 0 listens, all
// others connect to it, and it relays. A thread speaks for the rank; it needs no lock of Python's, so a rank that
// computes for long is alive, and one that is stopped or gone is not.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "distributed/peer_channel.h"

namespace ngraph_mxnet {

// In a forked child, which is no rank, there is never a failure, and what is told goes nowhere.
class PeerWatch {
 public:
  // Takes over the socket: on rank 0 a listening one, on others a connection to it.
  PeerWatch(PeerJob job, int socket, PeerLimits limits);
  // To the other ranks this one has then ended, and failed unless all have left.
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;

  bool is_inherited() const;
  bool has_failed() const { return !is_inherited() && channel_->has_failed(); }
  // The first that was learnt.
  std::optional<PeerFailure> failure() const;
  // Becomes readable at a failure, for poll; -1 in a forked child.
  int failure_descriptor() const;
  // The program has the failure, as an exception: the process goes on.
  void take_failure();
  // The process is to end by itself now: after the time of grace it is ended.
  void limit_end();

  // This rank has failed, which all others are told unless a failure is known. `why` need not name the rank.
  void fail(const std::string& why);
  // This rank is in this step, and waits for the others in it or does not.
  void step(std::int64_t number, bool waits);
  // This rank has ended well, after so many steps, or the last one in which it waited.
  void leave(std::optional<std::int64_t> steps);

  // Each returns at once on a failure. Whether there is one; whether all ranks are connected; whether all have left.
  bool wait(double seconds) const;
  bool wait_for_start(double seconds) const;
  bool wait_for_all(double seconds) const;
  // On rank 0: the ranks that are not connected yet.
  std::vector<int> missing() const;

  // For a signal's handler: this rank is being ended by SIGTERM. Returns when what is known is told, or after half a
  // second.
  void tell_of_sigterm();

 private:
  std::shared_ptr<PeerChannel> channel_;
  const std::uint64_t generation_;
};

}  // namespace ngraph_mxnet

// Moving statistics of batch norms, which a backward pass moves.
#pragma once

#include <vector>

#include "mxnet/engine.h"

namespace ngraph_mxnet {

// A moving statistic and that of the batch: float32 vectors of one length, in plain arrays that share no memory.
struct MovingStatistic {
  engine::Handle moving, batch;
  float momentum;
};

// Pushes to MXNet's engine that each becomes moving * momentum + batch * (1 - momentum), as MXNet computes it. The handles
// may be freed at once. Whether it was pushed, or there is nothing to do.
bool move_statistics(const std::vector<MovingStatistic>& statistics, engine::Device device);

}  // namespace ngraph_mxnet

// Which cores threads may run on: OMP_PLACES, OMP_PROC_BIND and GOMP_CPU_AFFINITY, as libgomp has read them.
#pragma once

namespace ngraph_mxnet {

// Cores that this process may use; at least one.
int usable_cores();

// True if the environment says where threads are to run.
bool binds_threads();

// Binds the calling thread, which is number `thread` of a team, to its place, if threads are to be bound. `place` is
// its own, 0 at first: one more than the place that it was bound to last.
void bind_to_place(int thread, int team, int* place);

}  // namespace ngraph_mxnet

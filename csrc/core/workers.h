// Threads of our own, for graphs that run while the caller goes on.
#pragma once

#include <functional>

namespace ngraph_mxnet {
namespace workers {

// Runs the job, which must not throw, on a thread that is idle, or on a new one; behind others where there are as many
// threads as cores, or the system gives no more; if it gives none, on this thread. They are never joined, and a forked
// child has new ones. No job may wait for one submitted later.
void submit(std::function<void()> job);

}  // namespace workers
}  // namespace ngraph_mxnet

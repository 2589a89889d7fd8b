#include "mxnet/libmxnet.h"

#include <stdexcept>
#include <type_traits>

#include <dlfcn.h>

namespace ngraph_mxnet {

LibMXNet mxnet{};

void connect_libmxnet(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) throw std::runtime_error(path + " is not loaded");
  LibMXNet found{};
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
    if (*function == nullptr) throw std::runtime_error(std::string("libmxnet has no function ") + name);
  };
  find("MXGetLastError", &found.last_error);
  find("_Z17MXAPISetLastErrorPKc", &found.set_error);  // MXAPISetLastError, which is not C
  find("MXNotifyShutdown", &found.shut_down);

  find("MXNDArrayCreateEx64", &found.create);
  find("MXNDArrayFree", &found.free);
  find("MXNDArrayGetData", &found.data);
  find("MXNDArrayGetStorageType", &found.storage_type);
  find("MXNDArrayGetContext", &found.context);
  find("MXShallowCopyNDArray", &found.shallow_copy);
  find("MXNDArrayReshape64", &found.reshape);
  find("MXNDArraySyncCopyFromCPU", &found.copy_from_cpu);
  find("MXNDArrayFromDLPackEx", &found.from_dlpack);
  find("MXNDArrayToDLPack", &found.to_dlpack);
  find("MXNDArrayWaitToRead", &found.wait_to_read);
  find("MXNDArrayWaitAll", &found.wait_all);
  // NDArray::Chunk::Reorder2Default(), which the C interface reaches by a push and a wait only.
  find("_ZN5mxnet7NDArray5Chunk15Reorder2DefaultEv", &found.unblock);

  find("MXEnginePushAsyncND", &found.push);
  find("MXEngineSetBulkSize", &found.bulk);
  find("MXSetProfilerState", &found.profile);
  find("MXSetProcessProfilerState", &found.profile_process);

  find("NNGetOpHandle", &found.find_op);
  find("MXImperativeInvoke", &found.invoke);
  find("MXExecutorForward", &found.executor_forward);
  find("MXExecutorBackwardEx", &found.executor_backward);
  find("MXExecutorFree", &found.free_executor);
  find("MXExecutorSetMonitorCallback", &found.monitor);
  find("MXExecutorSetMonitorCallbackEX", &found.monitor_all);
  find("MXInvokeCachedOpEx", &found.cached_op);
  find("MXFreeCachedOp", &found.free_cached_op);
  find("MXCachedOpRegisterOpHook", &found.hook);

  find("MXAutogradIsRecording", &found.is_recording);
  find("MXAutogradIsTraining", &found.is_training);
  find("MXAutogradSetIsRecording", &found.set_recording);
  find("MXCustomFunctionRecord", &found.record);
  find("MXAutogradMarkVariables", &found.mark);
  find("MXNDArrayGetGrad", &found.gradient);
  find("MXNDArraySetGradState", &found.set_fresh);
  find("MXAutogradBackwardEx", &found.backward);
  mxnet = found;
}

}  // namespace ngraph_mxnet

// The functions of libmxnet's C interface, as they are before any is replaced by one of ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

struct DLManagedTensor;

namespace ngraph_mxnet {

// Names of such functions, and the addresses of those of ours that are to be called in their place.
using Replacements = std::vector<std::pair<std::string, std::uintptr_t>>;

template <class Result, class... Arguments>
std::uintptr_t address_of(Result (*function)(Arguments...)) {
  return reinterpret_cast<std::uintptr_t>(function);
}

namespace engine {
class Completion;
}
struct CallbackList;

// A function of libmxnet's, by its name in the C interface. It is null until `connect_libmxnet` has found it.
class LibFunction {
 public:
  // From now on libmxnet itself calls `function` in its place. False, with nothing changed, if libmxnet doesn't call it
  // by its table of functions, or that table can't be written.
  bool redirect(void* function) const;

 protected:
  explicit LibFunction(const char* name) : name_(name) { all_.push_back(this); }

  const char* name_;
  void* address_ = nullptr;

 private:
  friend void connect_libmxnet(const std::string& path);
  inline static std::vector<LibFunction*> all_;
};

template <class Signature>
class Function;

template <class Result, class... Arguments>
class Function<Result(Arguments...)> : public LibFunction {
 public:
  explicit Function(const char* name) : LibFunction(name) {}
  Result operator()(Arguments... arguments) const {
    return reinterpret_cast<Result (*)(Arguments...)>(address_)(arguments...);
  }
};

// The functions that our code calls, named by what each does.
struct LibMXNet {
  using Handle = void*;
  using Callback = void*;
  using Pushed = void (*)(void* run_context, const engine::Completion* completion, void* argument);
  using Deleter = void (*)(void* argument);

  Function<const char*()> last_error{"MXGetLastError"};
  Function<void(const char* text)> set_error{"_Z17MXAPISetLastErrorPKc"};  // MXAPISetLastError, which is not C
  Function<int()> shut_down{"MXNotifyShutdown"};

  // Arrays.
  Function<int(const std::int64_t* shape, int dimensions, int device_type, int device_id, int delay, int dtype,
               Handle* array)> create{"MXNDArrayCreateEx64"};
  Function<int(Handle)> free{"MXNDArrayFree"};
  Function<int(Handle, void**)> data{"MXNDArrayGetData"};
  Function<int(Handle, int*)> storage_type{"MXNDArrayGetStorageType"};
  Function<int(Handle, int* type, int* id)> context{"MXNDArrayGetContext"};
  Function<int(Handle, Handle*)> shallow_copy{"MXShallowCopyNDArray"};
  Function<int(Handle, int dimensions, const std::int64_t* shape, bool reverse,
               Handle* reshaped)> reshape{"MXNDArrayReshape64"};
  Function<int(Handle, std::uint32_t begin, std::uint32_t end, Handle* sliced)> slice{"MXNDArraySlice"};
  Function<int(Handle, std::int64_t begin, std::int64_t end, Handle* sliced)> slice_long{"MXNDArraySlice64"};
  Function<int(Handle, std::uint32_t index, Handle* row)> at{"MXNDArrayAt"};
  Function<int(Handle, std::int64_t index, Handle* row)> at_long{"MXNDArrayAt64"};
  Function<int(Handle, const void*, std::size_t)> copy_from_cpu{"MXNDArraySyncCopyFromCPU"};
  Function<int(DLManagedTensor*, bool transient, Handle*)> from_dlpack{"MXNDArrayFromDLPackEx"};
  Function<int(Handle, DLManagedTensor**)> to_dlpack{"MXNDArrayToDLPack"};
  Function<int(Handle)> wait_to_read{"MXNDArrayWaitToRead"};
  Function<int()> wait_all{"MXNDArrayWaitAll"};
  // NDArray::Chunk::Reorder2Default(), which the C interface reaches by a push and a wait only.
  Function<void(const void* chunk)> unblock{"_ZN5mxnet7NDArray5Chunk15Reorder2DefaultEv"};

  // The engine.
  Function<int(Pushed, void*, Deleter, const void* context, Handle* read, int reads, Handle* written, int writes,
               const void* property, int priority, const char* name, bool wait)> push{"MXEnginePushAsyncND"};
  Function<int(int, int*)> bulk{"MXEngineSetBulkSize"};
  Function<int(int)> profile{"MXSetProfilerState"};
  Function<int(int, int, void*)> profile_process{"MXSetProcessProfilerState"};

  // Calls of operators and graphs.
  Function<int(const char* name, Handle* op)> find_op{"NNGetOpHandle"};
  Function<int(Handle op, int inputs, Handle* in, int* outputs, Handle** out, int options, const char** keys,
               const char** values)> invoke{"MXImperativeInvoke"};
  Function<int(Handle op, int inputs, Handle* in, int* outputs, Handle** out, int options, const char** keys,
               const char** values, const int** storage_types)> invoke_ex{"MXImperativeInvokeEx"};
  // Imperative::InvokeOp: runs an operator whose outputs have their types. It returns an OpStatePtr, a shared pointer.
  Function<void*(void* state, void* imperative, const void* context, const void* attributes, const void* in,
                 const void* out, const void* requests, int mode, void* given)>
      run_op{"_ZN5mxnet10Imperative8InvokeOpERKNS_7ContextERKN4nnvm9NodeAttrsERKSt6vectorIPNS_7NDArrayESaISA_EESE_RKS8_"
             "INS_9OpReqTypeESaISF_EENS_12DispatchModeENS_10OpStatePtrE"};
  Function<int(Handle executor, int is_train)> executor_forward{"MXExecutorForward"};
  Function<int(Handle executor, std::uint32_t count, Handle* head_gradients,
               int is_train)> executor_backward{"MXExecutorBackwardEx"};
  Function<int(Handle)> free_executor{"MXExecutorFree"};
  Function<int(Handle, Callback, void*)> monitor{"MXExecutorSetMonitorCallback"};
  Function<int(Handle, Callback, void*, bool)> monitor_all{"MXExecutorSetMonitorCallbackEX"};
  Function<int(Handle op, int inputs, Handle* in, int* outputs, Handle** out,
               const int** storage_types)> cached_op{"MXInvokeCachedOpEx"};
  Function<int(Handle)> free_cached_op{"MXFreeCachedOp"};
  Function<int(Handle, Callback, bool)> hook{"MXCachedOpRegisterOpHook"};

  // Gradients.
  Function<int(bool*)> is_recording{"MXAutogradIsRecording"};
  Function<int(bool*)> is_training{"MXAutogradIsTraining"};
  Function<int(int, int*)> set_recording{"MXAutogradSetIsRecording"};
  Function<int(int inputs, Handle* in, int outputs, Handle* out,
               CallbackList* callbacks)> record{"MXCustomFunctionRecord"};
  Function<int(std::uint32_t count, Handle* arrays, std::uint32_t* requests,
               Handle* gradients)> mark{"MXAutogradMarkVariables"};
  Function<int(Handle, Handle*)> gradient{"MXNDArrayGetGrad"};
  Function<int(Handle, int)> set_fresh{"MXNDArraySetGradState"};
  Function<int(std::uint32_t count, Handle* heads, Handle* gradients, std::uint32_t variables, Handle* by,
               int retain, int create, int is_train, Handle** made, int** types)> backward{"MXAutogradBackwardEx"};
};

extern LibMXNet mxnet;

// Finds the functions in libmxnet, which the process has loaded from `path`, and which stays loaded. Throws
// std::runtime_error if that is not so, or there is no such function.
void connect_libmxnet(const std::string& path);

}  // namespace ngraph_mxnet

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

// The functions of libmxnet that our code calls, named by what each does. libmxnet.cc has their names in the C interface.
// All are null until `connect_libmxnet` has found them.
struct LibMXNet {
  using Handle = void*;
  using Callback = void*;
  using Pushed = void (*)(void* run_context, const engine::Completion* completion, void* argument);
  using Deleter = void (*)(void* argument);

  const char* (*last_error)();
  void (*set_error)(const char* text);
  int (*shut_down)();

  // Arrays.
  int (*create)(const std::int64_t* shape, int dimensions, int device_type, int device_id, int delay, int dtype, Handle* array);
  int (*free)(Handle);
  int (*data)(Handle, void**);
  int (*storage_type)(Handle, int*);
  int (*context)(Handle, int* type, int* id);
  int (*shallow_copy)(Handle, Handle*);
  int (*reshape)(Handle, int dimensions, const std::int64_t* shape, bool reverse, Handle* reshaped);
  int (*copy_from_cpu)(Handle, const void*, std::size_t);
  int (*from_dlpack)(DLManagedTensor*, bool transient, Handle*);
  int (*to_dlpack)(Handle, DLManagedTensor**);
  int (*wait_to_read)(Handle);
  int (*wait_all)();
  void (*unblock)(const void* chunk);

  // The engine.
  int (*push)(Pushed, void*, Deleter, const void* context, Handle* read, int reads, Handle* written, int writes,
              const void* property, int priority, const char* name, bool wait);
  int (*bulk)(int, int*);
  int (*profile)(int);
  int (*profile_process)(int, int, void*);

  // Calls of operators and graphs.
  int (*find_op)(const char* name, Handle* op);
  int (*invoke)(Handle op, int inputs, Handle* in, int* outputs, Handle** out, int options, const char** keys,
                const char** values);
  int (*executor_forward)(Handle executor, int is_train);
  int (*executor_backward)(Handle executor, std::uint32_t count, Handle* head_gradients, int is_train);
  int (*free_executor)(Handle);
  int (*monitor)(Handle, Callback, void*);
  int (*monitor_all)(Handle, Callback, void*, bool);
  int (*cached_op)(Handle op, int inputs, Handle* in, int* outputs, Handle** out, const int** storage_types);
  int (*free_cached_op)(Handle);
  int (*hook)(Handle, Callback, bool);

  // Gradients.
  int (*is_recording)(bool*);
  int (*is_training)(bool*);
  int (*set_recording)(int, int*);
  int (*record)(int inputs, Handle* in, int outputs, Handle* out, CallbackList* callbacks);
  int (*mark)(std::uint32_t count, Handle* arrays, std::uint32_t* requests, Handle* gradients);
  int (*gradient)(Handle, Handle*);
  int (*set_fresh)(Handle, int);
  int (*backward)(std::uint32_t count, Handle* heads, Handle* gradients, std::uint32_t variables, Handle* by, int retain,
                  int create, int is_train, Handle** made, int** types);
};

extern LibMXNet mxnet;

// Finds the functions in libmxnet, which the process has loaded from `path`, and which stays loaded. Throws
// std::runtime_error if that is not so, or there is no such function.
void connect_libmxnet(const std::string& path);

}  // namespace ngraph_mxnet

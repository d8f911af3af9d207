// What every file of CPU kernels needs: reading XLA's call frames, and sharing a batch among XLA's threads.

#ifndef JAXWORLDS_NATIVE_H_
#define JAXWORLDS_NATIVE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>

#include "xla/ffi/api/c_api.h"

namespace jaxworlds {

template <typename Job>
struct Shared {
  Job job;
  void (*each)(const Job&, int64_t);
  int64_t size, part_size, parts;
  std::atomic<int64_t> next{0}, finished{0};

  void help() {
    for (int64_t part; (part = next.fetch_add(1)) < parts;) {
      const int64_t end = std::min(size, (part + 1) * part_size);
      for (int64_t i = part * part_size; i < end; ++i) each(job, i);
      finished.fetch_add(1);
    }
  }
};

// `each(job, i)` for all i below `size`. `part` of them are what one thread takes at a time: so many that waking
// another thread pays.
template <typename Job>
void for_all(XLA_FFI_CallFrame* frame, const Job& job, void (*each)(const Job&, int64_t), int64_t size,
             int64_t part) {
  if (size <= part) {
    for (int64_t i = 0; i < size; ++i) each(job, i);
    return;
  }
  using Task = std::shared_ptr<Shared<Job>>;
  const Task shared(new Shared<Job>{job, each, size, part, (size + part - 1) / part});
  int64_t threads = 1;
  XLA_FFI_ThreadPool_NumThreads_Args count{XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE, nullptr, frame->ctx,
                                           &threads};
  if (XLA_FFI_Error* error = frame->api->XLA_FFI_ThreadPool_NumThreads(&count)) {
    XLA_FFI_Error_Destroy_Args destroy{XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, error};
    frame->api->XLA_FFI_Error_Destroy(&destroy);
    threads = 1;
  }
  // A helper that comes late finds nothing to do; so nobody waits for a thread that may never come.
  for (int64_t k = 1; k < std::min(threads, shared->parts); ++k) {
    Task* handed = new Task(shared);
    XLA_FFI_ThreadPool_Schedule_Args call{XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, nullptr, frame->ctx,
                                          [](void* data) {
                                            std::unique_ptr<Task> task(static_cast<Task*>(data));
                                            (*task)->help();
                                          },
                                          handed};
    if (XLA_FFI_Error* error = frame->api->XLA_FFI_ThreadPool_Schedule(&call)) {
      XLA_FFI_Error_Destroy_Args destroy{XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, error};
      frame->api->XLA_FFI_Error_Destroy(&destroy);
      delete handed;
      break;
    }
  }
  shared->help();
  while (shared->finished.load() < shared->parts) std::this_thread::yield();
}

// XLA first asks each function for the version it was compiled for.
inline bool asks_for_metadata(XLA_FFI_CallFrame* frame) {
  auto* extension = frame->extension_start;  // its type has another name in newer headers
  if (!extension || extension->type != XLA_FFI_Extension_Metadata) return false;
  XLA_FFI_Metadata* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  metadata->traits = 0;
  return true;
}

// The arrays of a call, one after the other.
struct Buffers {
  void** list;
  int64_t at = 0;
  XLA_FFI_Buffer* buffer() { return static_cast<XLA_FFI_Buffer*>(list[at++]); }
  template <typename T>
  T* next() {
    return static_cast<T*>(buffer()->data);
  }
};

// Whether a call has an attribute of this name that is not 0.
inline bool flag(XLA_FFI_CallFrame* frame, const char* name) {
  for (int64_t k = 0; k < frame->attrs.size; ++k)
    if (frame->attrs.names[k]->len == std::strlen(name) &&
        !std::memcmp(frame->attrs.names[k]->ptr, name, frame->attrs.names[k]->len))
      return *static_cast<int32_t*>(static_cast<XLA_FFI_Scalar*>(frame->attrs.attrs[k])->value) != 0;
  return false;
}

}  // namespace jaxworlds

#endif  // JAXWORLDS_NATIVE_H_

// A zeroed block of memory aligned for the widest vector load.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include <sys/mman.h>

namespace ngraph_mxnet {

constexpr std::size_t kAlignment = 64;

class AlignedBuffer {
 public:
  AlignedBuffer() = default;

  explicit AlignedBuffer(std::size_t bytes) : bytes_(bytes) {
    // Never null, and a kernel's last vector may be read whole.
    std::size_t rounded = (bytes + 2 * kAlignment - 1) / kAlignment * kAlignment;
    const bool huge = rounded >= kHugePage;
    const std::size_t alignment = huge ? kHugePage : kAlignment;
    rounded = (rounded + alignment - 1) / alignment * alignment;
    data_ = static_cast<char*>(std::aligned_alloc(alignment, rounded));
    if (data_ == nullptr) throw std::bad_alloc();
    if (huge) madvise(data_, rounded, MADV_HUGEPAGE);  // only a hint: fewer TLB misses
    std::memset(data_, 0, rounded);
  }

  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer() { std::free(data_); }

  char* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  void swap(AlignedBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  char* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ngraph_mxnet

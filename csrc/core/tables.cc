#include "core/tables.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>

#include "core/sizes.h"

namespace ngraph_mxnet {
namespace {

using Numbers = std::vector<std::int64_t>;
constexpr std::int64_t kTensors = 4;  // rows of a pixel table
constexpr std::int64_t kMostEntries = std::int64_t{1} << 27;

std::int32_t offset32(std::int64_t offset) {
  if (offset > std::numeric_limits<std::int32_t>::max() || offset < std::numeric_limits<std::int32_t>::min()) {
    throw std::invalid_argument("a contraction's tables hold 32-bit byte offsets; the tensor spans over 2 GiB");
  }
  return static_cast<std::int32_t>(offset);
}

// How many entries axes of these sizes have.
std::int64_t entries_of(std::initializer_list<std::int64_t> sizes) {
  std::int64_t entries = 1;
  for (const std::int64_t size : sizes) entries = SizeInts::multiply(entries, counted(size));
  if (entries > kMostEntries) throw std::invalid_argument("a table of " + std::to_string(entries) + " entries");
  return entries;
}

// An axis of a table: how many entries, from the first one at `first`, `stride` apart.
struct Axis {
  std::int64_t size, first, stride;
};

// Throws std::invalid_argument unless all sums of one offset of each axis fit into 32 bits. If they fit, none of the
// sums that the tables below add up is beyond bounds.
void check_offsets(std::initializer_list<Axis> axes) {
  std::int64_t least = 0, greatest = 0;
  for (const Axis& axis : axes) {
    if (axis.size == 0) return;
    const std::int64_t first = SizeInts::multiply(axis.first, axis.stride);
    const std::int64_t last = SizeInts::add(first, SizeInts::multiply(axis.size - 1, axis.stride));
    least = SizeInts::add(least, std::min(first, last));
    greatest = SizeInts::add(greatest, std::max(first, last));
  }
  offset32(least);
  offset32(greatest);
}

AlignedBuffer pixel_table(const Numbers& n) {
  const std::int64_t height = n[0], width = n[1], images = n[2], pixels = entries_of({height, width, images});
  AlignedBuffer table(kTensors * pixels * sizeof(std::int32_t));
  auto* entries = reinterpret_cast<std::int32_t*>(table.data());
  for (std::int64_t tensor = 0; tensor < kTensors; ++tensor) {
    const std::int64_t row = n[7 + 3 * tensor], pixel = n[8 + 3 * tensor], image = n[9 + 3 * tensor];
    if (row == 0 && pixel == 0 && image == 0) {  // there is no such tensor, and zeros are there
      entries += pixels;
      continue;
    }
    const std::int64_t down = tensor == 0 ? n[3] : 1, right = tensor == 0 ? n[4] : 1;
    const std::int64_t top = tensor == 0 ? n[5] : 0, left = tensor == 0 ? n[6] : 0;
    const std::int64_t down_stride = SizeInts::multiply(down, row), right_stride = SizeInts::multiply(right, pixel);
    const std::int64_t padding = SizeInts::add(SizeInts::multiply(top, row), SizeInts::multiply(left, pixel));
    const std::int64_t corner = SizeInts::multiply(padding, -1);
    check_offsets({{1, 1, corner}, {images, 0, image}, {height, 0, down_stride}, {width, 0, right_stride}});
    for (std::int64_t i = 0; i < images; ++i) {
      for (std::int64_t h = 0; h < height; ++h) {
        // No sum is beyond 32 bits, as check_offsets has found.
        const auto begin = static_cast<std::int32_t>(corner + i * image + h * down_stride);
        const auto step = static_cast<std::int32_t>(right_stride);
        for (std::int32_t w = 0; w < width; ++w) entries[w] = begin + w * step;
        entries += width;
      }
    }
  }
  return table;
}

AlignedBuffer step_table(const Numbers& n) {
  const std::int64_t channels = n[0], channel_stride = n[1], lanes = n[2], kernel_h = n[3], kernel_w = n[4];
  const std::int64_t down = SizeInts::multiply(n[5], n[9]), right = SizeInts::multiply(n[6], n[10]);
  const std::int64_t slices = n[7], slice_stride = n[8];
  AlignedBuffer table(entries_of({channels, slices, kernel_h, kernel_w}) * sizeof(std::int32_t));
  if (counted(lanes) < 1) throw std::invalid_argument("a table of " + std::to_string(lanes) + " lanes");
  check_offsets({{(channels + lanes - 1) / lanes, 0, channel_stride}, {std::min(channels, lanes), 0, 4},
                 {slices, 0, slice_stride}, {kernel_h, 0, down}, {kernel_w, 0, right}});
  auto* entries = reinterpret_cast<std::int32_t*>(table.data());
  for (std::int64_t c = 0; c < channels; ++c) {
    const std::int64_t channel = c / lanes * channel_stride + c % lanes * 4;
    for (std::int64_t s = 0; s < slices; ++s) {
      for (std::int64_t h = 0; h < kernel_h; ++h) {
        for (std::int64_t w = 0; w < kernel_w; ++w) {
          *entries++ = static_cast<std::int32_t>(channel + s * slice_stride + h * down + w * right);
        }
      }
    }
  }
  return table;
}

// Inputs that an output of a resampled axis reads, and their weights (microkernels/tables.py).
class Taps {
 public:
  explicit Taps(const Numbers& n) : size_(counted(n[0])), out_(counted(n[1])), mode_(n[2]), taps_(counted(n[3])) {
    if (mode_ < kMeans || mode_ > kCorners) throw std::invalid_argument("resampling of mode " + std::to_string(mode_));
    if (size_ < 1) throw std::invalid_argument("nothing to resample");
    entries_of({out_, std::max(size_, taps_)});  // no product below is beyond bounds
  }

  std::int64_t out() const { return out_; }
  std::int64_t taps() const { return taps_; }

  std::int64_t first(std::int64_t i) const {
    if (mode_ <= kNearest) return i * size_ / out_;
    return std::min(static_cast<std::int64_t>(place(i)), size_ - 1);
  }

  void weigh(std::int64_t i, float* weights) const {
    std::fill(weights, weights + taps_, 0.0f);
    if (mode_ == kNearest) return put(1, weights, [](std::int64_t) { return 1.0f; });
    if (mode_ == kMeans) {
      const std::int64_t count = ((i + 1) * size_ + out_ - 1) / out_ - first(i);
      return put(count, weights, [&](std::int64_t) { return static_cast<float>(1.0 / static_cast<double>(count)); });
    }
    const std::int64_t before = first(i);
    const float second = before < size_ - 1 ? place(i) - static_cast<float>(before) : 0.0f;
    put(2, weights, [&](std::int64_t tap) { return tap == 0 ? 1.0f - second : second; });
  }

 private:
  enum : std::int64_t { kMeans = -1, kNearest, kLinear, kCorners };

  // In float32, as `resize_taps` (ops/pooling.py).
  float place(std::int64_t i) const {
    if (out_ == 1) return 0.0f;
    const double size = static_cast<double>(size_), out = static_cast<double>(out_);
    if (mode_ == kCorners) return static_cast<float>(i) * static_cast<float>((size - 1) / (out - 1));
    const float scaled = (static_cast<float>(i) + 0.5f) * static_cast<float>(size / out);
    return std::max(scaled - 0.5f, 0.0f);
  }

  template <class Weight>
  void put(std::int64_t count, float* weights, const Weight& weight) const {
    if (count > taps_) throw std::invalid_argument("an output reads more than " + std::to_string(taps_) + " elements");
    for (std::int64_t tap = 0; tap < count; ++tap) weights[tap] = weight(tap);
  }

  std::int64_t size_, out_, mode_, taps_;
};

AlignedBuffer first_taps(const Numbers& n) {
  const Taps taps(n);
  AlignedBuffer table(taps.out() * sizeof(std::int64_t));
  for (std::int64_t i = 0; i < taps.out(); ++i) reinterpret_cast<std::int64_t*>(table.data())[i] = taps.first(i);
  return table;
}

AlignedBuffer tap_weights(const Numbers& n) {
  const Taps taps(n);
  AlignedBuffer table(taps.out() * taps.taps() * sizeof(float));
  for (std::int64_t i = 0; i < taps.out(); ++i) taps.weigh(i, reinterpret_cast<float*>(table.data()) + i * taps.taps());
  return table;
}

}  // namespace

const std::array<TableKind, 4> kTables = {
    {{"pixels", 19, pixel_table}, {"steps", 11, step_table}, {"first_taps", 4, first_taps},
     {"tap_weights", 4, tap_weights}}};

const TableKind* find_table(const std::string& name) {
  const auto found =
      std::find_if(kTables.begin(), kTables.end(), [&](const TableKind& each) { return name == each.name; });
  return found == kTables.end() ? nullptr : &*found;
}

}  // namespace ngraph_mxnet

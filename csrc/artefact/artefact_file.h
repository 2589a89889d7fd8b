// The file of a compiled model as sections, whose numbers and texts may be damaged: docs/artefact.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/content_hash.h"

namespace ngraph_mxnet {

// It is no compiled model, damaged, cut off, or newer than this library.
class FormatError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// It has nothing that this CPU runs.
class CpuError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] inline void fail(const std::string& why) { throw FormatError(why); }

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;

// Reads one field after the other. Throws FormatError at the end.
class Reader {
 public:
  Reader(const char* data, std::size_t bytes, std::string what) : at_(data), left_(bytes), what_(std::move(what)) {}

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::uint32_t u32() { return number<std::uint32_t>(); }
  std::uint64_t u64() {
    const auto value = number<std::uint64_t>();
    if (value > kMostBytes) fail(what_ + ": the number " + std::to_string(value));
    return value;
  }
  std::string text() {
    const std::uint32_t bytes = u32();
    return {take(bytes), bytes};
  }
  // How many things of at least so many bytes each follow.
  std::size_t count(std::size_t least) {
    const std::uint32_t count = u32();
    if (count > left_ / least) fail(what_ + " is cut off");
    return count;
  }
  template <class T>
  std::vector<T> numbers(std::size_t count) {
    check<T>(count);
    std::vector<T> values(count);
    const char* const data = take(count * sizeof(T));
    if (count > 0) std::memcpy(values.data(), data, count * sizeof(T));
    return values;
  }
  std::vector<std::size_t> places(std::size_t count) {  // as u32
    check<std::uint32_t>(count);
    std::vector<std::size_t> values(count);
    for (std::size_t& value : values) value = u32();
    return values;
  }

 private:
  template <class T>
  void check(std::size_t count) const {
    if (count > left_ / sizeof(T)) fail(what_ + " is cut off");
  }

  const char* take(std::size_t bytes) {
    if (bytes > left_) fail(what_ + " is cut off");
    left_ -= bytes;
    return std::exchange(at_, at_ + bytes);
  }

  const char* at_;
  std::size_t left_;
  std::string what_;
};

constexpr std::size_t kMostSections = 4096;
// A RANGE is of format 1 alone.
enum Kind : std::uint32_t { kMeta = 1, kData = 2, kProgram = 3, kReference = 4, kChecks = 5, kRange = 6 };

struct Section {
  std::uint32_t kind, flags;
  std::uint64_t offset, bytes;
  Hash128 hash;
  std::uint32_t instruction_set, number;

  std::string str() const;
};

// Mapped as long as this lives: what is never read is never loaded.
class ArtefactFile {
 public:
  // Throws std::system_error where the file can't be read, and FormatError.
  explicit ArtefactFile(const std::string& path);
  ~ArtefactFile();
  ArtefactFile(const ArtefactFile&) = delete;
  ArtefactFile& operator=(const ArtefactFile&) = delete;

  std::uint32_t format() const { return format_; }
  // Returns the sections of known kinds. They lie within the file and not in each other.
  const std::vector<Section>& sections() const { return sections_; }
  const char* content(const Section& section) const { return data_ + section.offset; }

  // Throws FormatError if the content is not what was written.
  void check(const Section& section) const;

  // The same for the pieces in which these bytes lie, given as first and one past the last. `checks` has their hashes.
  void check_ranges(const Section& section, const Section& checks,
                    const std::vector<std::pair<std::size_t, std::size_t>>& ranges) const;

 private:
  void map(const std::string& path);
  void read_sections();

  char* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint32_t format_ = 0;
  std::vector<Section> sections_;
};

// The check of a content, as the file has it of its sections, and of the weights it was made of.
Hash128 check_of(const void* data, std::size_t bytes);

}  // namespace ngraph_mxnet

// The file of a compiled model as sections: docs/artefact.md.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "artefact/format_reader.h"
#include "core/content_hash.h"

namespace ngraph_mxnet {

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

#include "artefact/artefact_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <tuple>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/aligned_buffer.h"
#include "core/places.h"
#include "core/team.h"

namespace ngraph_mxnet {
namespace {

constexpr std::string_view kMagic = "ngraph artefact\n";
constexpr std::uint32_t kFormat = 2;
constexpr std::size_t kHeader = 64, kEntry = 64;
constexpr std::size_t kPiece = std::size_t{1} << 20;
constexpr std::uint32_t kRequired = 1;  // flag

// The published key of the checks: splitmix64 from state 0.
const ContentHasher& hasher() {
  static const ContentHasher made = [] {
    ContentHasher::Key key;
    std::uint64_t state = 0;
    for (std::uint64_t& word : key) word = splitmix64(&state);
    return ContentHasher(key);
  }();
  return made;
}

std::size_t pieces_of(std::size_t bytes) { return (bytes + kPiece - 1) / kPiece; }

Hash128 hash_of_piece(const char* data, std::size_t bytes, std::size_t piece) {
  return hasher()(data + piece * kPiece, std::min(kPiece, bytes - piece * kPiece));
}

// True if all wanted pieces have these hashes. All cores compute the hashes, which is most of what loading takes.
bool pieces_have(const char* data, std::size_t bytes, const std::vector<Hash128>& hashes,
                 const std::vector<bool>& wanted) {
  std::atomic<bool> same{true};
  run_on_team(usable_cores(), hashes.size(), [&](int i) {
    if (wanted[i] && hash_of_piece(data, bytes, i) != hashes[i]) same = false;
  });
  return same;
}

void check_content(const char* data, std::size_t bytes, const Hash128& expected, const std::string& what) {
  if (check_of(data, bytes) != expected) fail(what + " is damaged: its check is another");
}

void check_apart(std::vector<Section> sections) {
  // An empty one may begin with another.
  std::sort(sections.begin(), sections.end(), [](const Section& a, const Section& b) {
    return std::tie(a.offset, a.bytes) < std::tie(b.offset, b.bytes);
  });
  for (std::size_t i = 1; i < sections.size(); ++i) {
    if (sections[i].offset - sections[i - 1].offset < sections[i - 1].bytes) {
      fail(sections[i].str() + " lies in " + sections[i - 1].str());
    }
  }
}

}  // namespace

std::string Section::str() const {
  static constexpr const char* kNames[] = {"section", "META", "DATA", "PROGRAM", "REFERENCE", "CHECKS", "RANGE"};
  return std::string(kind <= kRange ? kNames[kind] : "section") + " at " + std::to_string(offset);
}

ArtefactFile::ArtefactFile(const std::string& path) {
  map(path);
  try {
    read_sections();
  } catch (...) {
    if (bytes_ > 0) munmap(data_, bytes_);
    throw;
  }
}

ArtefactFile::~ArtefactFile() {
  if (bytes_ > 0) munmap(data_, bytes_);
}

void ArtefactFile::map(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would block without
  if (file < 0) throw std::system_error(errno, std::generic_category(), path);
  struct stat status;
  const bool known = fstat(file, &status) == 0;
  void* data = MAP_FAILED;
  if (known && S_ISREG(status.st_mode) && status.st_size > 0) {
    data = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
  }
  const int error = known ? errno : EIO;
  close(file);
  if (known && !S_ISREG(status.st_mode)) {
    throw std::system_error(EINVAL, std::generic_category(), path + " is no file");
  }
  if (!known || (status.st_size > 0 && data == MAP_FAILED)) {
    throw std::system_error(error, std::generic_category(), path);
  }
  if (data == MAP_FAILED) return;  // it is empty
  data_ = static_cast<char*>(data);
  bytes_ = static_cast<std::size_t>(status.st_size);
}

void ArtefactFile::read_sections() {
  if (bytes_ < kHeader || std::string_view(data_, kMagic.size()) != kMagic) {
    fail("this is no file of `ngraph_mxnet compile`");
  }
  Reader header(data_ + kMagic.size(), kHeader - kMagic.size(), "the header");
  format_ = header.u32();
  const std::uint32_t count = header.u32();
  if (format_ < 1 || format_ > kFormat) {
    fail("the file has format " + std::to_string(format_) + ", this library reads 1 to " + std::to_string(kFormat) +
         ": " +
         (format_ < 1 ? "compile the model again"
                      : "update it, or compile the model by the version that the library is of"));
  }
  const std::uint64_t bytes = header.number<std::uint64_t>();
  if (bytes != bytes_) {
    fail("the file is cut off or was added to: it has " + std::to_string(bytes_) + " bytes, and says " +
         std::to_string(bytes));
  }
  if (count > kMostSections || bytes_ - kHeader < count * kEntry) fail("the header is damaged");
  const auto table_hash = header.number<Hash128>();
  const char* const table = data_ + kHeader;
  check_content(table, count * kEntry, table_hash, "the table of sections");
  std::vector<Section> all;
  const std::size_t first = kHeader + count * kEntry;
  for (std::size_t i = 0; i < count; ++i) {
    Reader entry(table + i * kEntry, kEntry, "the table of sections");
    Section section;
    section.kind = entry.u32();
    section.flags = entry.u32();
    section.offset = entry.u64();
    section.bytes = entry.u64();
    section.hash = entry.number<Hash128>();
    section.instruction_set = entry.u32();
    section.number = entry.u32();
    const std::size_t alignment = section.kind == kData ? AlignedBuffer::kPage : kAlignment;
    if (section.offset < first || section.offset % alignment != 0 || section.offset > bytes_ ||
        section.bytes > bytes_ - section.offset) {
      fail(section.str() + " lies outside of the file");
    }
    const bool known = section.kind >= kMeta && section.kind <= (format_ == 1 ? kRange : kChecks);
    if (!known && (section.flags & kRequired) != 0) fail("the file needs a newer library: update it");
    all.push_back(section);
    if (known) sections_.push_back(section);
  }
  check_apart(std::move(all));
}

void ArtefactFile::check(const Section& section) const {
  check_content(content(section), section.bytes, section.hash, section.str());
}

void ArtefactFile::check_ranges(const Section& section, const Section& checks,
                                const std::vector<std::pair<std::size_t, std::size_t>>& ranges) const {
  std::vector<Hash128> hashes(pieces_of(section.bytes));
  const std::size_t bytes = hashes.size() * sizeof(Hash128);
  if (checks.bytes != bytes || hasher()(content(checks), bytes) != section.hash) fail(checks.str() + " is damaged");
  if (bytes > 0) std::memcpy(hashes.data(), content(checks), bytes);
  std::vector<bool> wanted(hashes.size());
  for (const auto& [first, end] : ranges) {
    const std::size_t last = std::min(end / kPiece, wanted.size() - 1);
    std::fill(wanted.begin() + first / kPiece, wanted.begin() + last + 1, true);
  }
  if (!pieces_have(content(section), section.bytes, hashes, wanted)) fail(section.str() + " is damaged");
}

Hash128 check_of(const void* data, std::size_t bytes) {
  std::vector<Hash128> hashes(pieces_of(bytes));
  for (std::size_t i = 0; i < hashes.size(); ++i) hashes[i] = hash_of_piece(static_cast<const char*>(data), bytes, i);
  return hasher()(hashes.data(), hashes.size() * sizeof(Hash128));
}

}  // namespace ngraph_mxnet

#include "artefact.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aligned_buffer.h"
#include "content_hash.h"
#include "kernel_table.h"
#include "places.h"
#include "team.h"
#include "validator.h"

namespace ngraph_mxnet {
namespace {

constexpr std::string_view kMagic = "ngraph artefact\n";
constexpr std::uint32_t kFormat = 1;
constexpr std::size_t kHeader = 64, kEntry = 64, kMostSections = 4096;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;
constexpr std::size_t kLeastPort = 12, kLeastInstruction = 44;  // bytes
constexpr std::size_t kPiece = std::size_t{1} << 20;
constexpr std::uint32_t kRequired = 1;  // flag
enum Kind : std::uint32_t { kMeta = 1, kData = 2, kProgram = 3, kReference = 4, kChecks = 5 };

[[noreturn]] void fail(const std::string& why) { throw FormatError(why); }

// The whole file in memory. What is never read is never loaded.
class Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would block without
    if (file < 0) throw std::system_error(errno, std::generic_category(), path);
    struct stat status;
    const bool known = fstat(file, &status) == 0;
    if (known && S_ISREG(status.st_mode) && status.st_size > 0) {
      bytes_ = static_cast<std::size_t>(status.st_size);
      data_ = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0);
    }
    const int error = known ? errno : EIO;
    close(file);
    if (known && !S_ISREG(status.st_mode)) {
      throw std::system_error(EINVAL, std::generic_category(), path + " is no file");
    }
    if (bytes_ > 0 && data_ == MAP_FAILED) throw std::system_error(error, std::generic_category(), path);
  }
  ~Mapping() {
    if (bytes_ > 0) munmap(data_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  const char* data() const { return static_cast<const char*>(data_); }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = MAP_FAILED;
  std::size_t bytes_ = 0;
};

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
    if (count > left_ / sizeof(T)) fail(what_ + " is cut off");
    std::vector<T> values(count);
    const char* const data = take(count * sizeof(T));
    if (count > 0) std::memcpy(values.data(), data, count * sizeof(T));
    return values;
  }

 private:
  const char* take(std::size_t bytes) {
    if (bytes > left_) fail(what_ + " is cut off");
    left_ -= bytes;
    return std::exchange(at_, at_ + bytes);
  }

  const char* at_;
  std::size_t left_;
  std::string what_;
};

// The published key of the checks: splitmix64 from state 0.
const ContentHasher& hasher() {
  static const ContentHasher made = [] {
    ContentHasher::Key key;
    std::uint64_t state = 0;
    for (std::uint64_t& word : key) {
      std::uint64_t z = state += 0x9e3779b97f4a7c15;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
      z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
      word = z ^ (z >> 31);
    }
    return ContentHasher(key);
  }();
  return made;
}

std::size_t pieces_of(std::size_t bytes) { return (bytes + kPiece - 1) / kPiece; }

Hash128 hash_of_piece(const char* data, std::size_t bytes, std::size_t piece) {
  return hasher()(data + piece * kPiece, std::min(kPiece, bytes - piece * kPiece));
}

// Whether the pieces have these hashes, as far as they are wanted. By all cores: it is most of what loading takes.
bool pieces_have(const char* data, std::size_t bytes, const std::vector<Hash128>& hashes,
                 const std::vector<bool>& wanted) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> same{true};
  run_on_team(usable_cores(), [&](int, int) {
    for (std::size_t i; (i = next.fetch_add(1)) < hashes.size();) {
      if (wanted[i] && hash_of_piece(data, bytes, i) != hashes[i]) same = false;
    }
  });
  return same;
}

void check(const char* data, std::size_t bytes, const Hash128& expected, const std::string& what) {
  if (check_of(data, bytes) != expected) fail(what + " is damaged: its check is another");
}

struct Section {
  std::uint32_t kind, flags;
  std::uint64_t offset, bytes;
  Hash128 hash;
  std::uint32_t instruction_set, shapes;

  std::string str() const {
    static constexpr const char* kNames[] = {"section", "META", "DATA", "PROGRAM", "REFERENCE", "CHECKS"};
    return std::string(kind <= kChecks ? kNames[kind] : "section") + " at " + std::to_string(offset);
  }
};

std::vector<Section> read_sections(const Mapping& file) {
  if (file.bytes() < kHeader || std::string_view(file.data(), kMagic.size()) != kMagic) {
    fail("this is no file of `ngraph_mxnet compile`");
  }
  Reader header(file.data() + kMagic.size(), kHeader - kMagic.size(), "the header");
  const std::uint32_t format = header.u32(), count = header.u32();
  if (format > kFormat) {
    fail("the file has format " + std::to_string(format) + ", this library reads up to " + std::to_string(kFormat) +
         ": update it");
  }
  const std::uint64_t bytes = header.number<std::uint64_t>();
  if (bytes != file.bytes()) {
    fail("the file is cut off or was added to: it has " + std::to_string(file.bytes()) + " bytes, and says " +
         std::to_string(bytes));
  }
  if (format < 1 || count > kMostSections || file.bytes() - kHeader < count * kEntry) fail("the header is damaged");
  const auto table_hash = header.number<Hash128>();
  const char* const table = file.data() + kHeader;
  check(table, count * kEntry, table_hash, "the table of sections");
  std::vector<Section> sections;
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
    section.shapes = entry.u32();
    const std::size_t alignment = section.kind == kData ? AlignedBuffer::kPage : kAlignment;
    if (section.offset < first || section.offset % alignment != 0 || section.offset > file.bytes() ||
        section.bytes > file.bytes() - section.offset) {
      fail(section.str() + " lies outside of the file");
    }
    const bool known = section.kind >= kMeta && section.kind <= kChecks;
    if (!known && (section.flags & kRequired) != 0) fail("the file needs a newer library: update it");
    if (known) sections.push_back(section);
  }
  return sections;
}

NamedSpec read_port(Reader* reader) {
  std::string name = reader->text();
  const std::string element = reader->text();
  const auto shape = reader->numbers<std::int64_t>(reader->count(sizeof(std::int64_t)));
  std::uint64_t elements = 1;
  for (std::int64_t dimension : shape) {
    if (dimension < 0 || (dimension > 0 && elements > kMostBytes / 16 / static_cast<std::uint64_t>(dimension))) {
      fail("port " + name + " has the shape " + shape_str(shape));
    }
    elements *= static_cast<std::uint64_t>(dimension);
  }
  return {std::move(name), TensorSpec(element, shape)};
}

Instruction read_instruction(Reader* reader, const std::vector<std::string>& texts) {
  const auto text = [&](std::uint32_t number) -> const std::string& {
    if (number >= texts.size()) fail("an instruction has no name");
    return texts[number];
  };
  Instruction instruction;
  instruction.name = text(reader->u32());
  instruction.origin = text(reader->u32());
  const std::uint32_t operands = reader->u32(), ints = reader->u32(), floats = reader->u32();
  instruction.tasks = static_cast<std::int64_t>(reader->u64());
  instruction.operations = reader->number<double>();
  instruction.bytes = reader->number<double>();
  for (std::uint32_t i = 0; i < operands; ++i) {
    const std::uint32_t space = reader->u32(), index = reader->u32();
    if (space > static_cast<std::uint32_t>(Space::kConstant)) fail("an operand in space " + std::to_string(space));
    instruction.operands.push_back({static_cast<Space>(space), index, reader->u64()});
  }
  instruction.ints = reader->numbers<std::int64_t>(ints);
  instruction.floats = reader->numbers<double>(floats);
  const FoundKernel found = find_kernel(instruction.name);
  if (found.kernel == nullptr) fail("this library has no kernel '" + instruction.name + "': update it");
  if (!found.runs) throw CpuError("this CPU does not run the kernel '" + instruction.name + "'");
  instruction.kernel = found.kernel;
  return instruction;
}

Surroundings around(const ShapeSet& set) {
  Surroundings found{{}, {}, 0};
  for (const NamedSpec& input : set.inputs) found.input_bytes.push_back(input.spec.bytes());
  for (const NamedSpec& output : set.outputs) found.output_bytes.push_back(output.spec.bytes());
  return found;
}

ShapeSet read_program(Reader reader, const Section& data, const std::shared_ptr<const Mapping>& file) {
  ShapeSet set;
  const std::size_t inputs = reader.count(kLeastPort), outputs = reader.count(kLeastPort);
  for (std::size_t i = 0; i < inputs; ++i) set.inputs.push_back(read_port(&reader));
  for (std::size_t i = 0; i < outputs; ++i) set.outputs.push_back(read_port(&reader));
  const std::uint64_t arena = reader.u64();
  std::vector<Constant> constants(reader.count(2 * sizeof(std::uint64_t)));
  for (Constant& constant : constants) {
    const std::uint64_t offset = reader.u64();
    constant.bytes = reader.u64();
    if (offset % kAlignment != 0 || offset > data.bytes || constant.bytes > data.bytes - offset ||
        data.bytes - offset - constant.bytes < kAlignment) {
      fail("a constant lies outside of DATA");
    }
    constant.data = file->data() + data.offset + offset;
  }
  std::vector<std::string> texts(reader.count(sizeof(std::uint32_t)));
  for (std::string& text : texts) text = reader.text();
  std::vector<Level> levels(reader.count(sizeof(std::uint32_t)));
  for (Level& level : levels) {
    const std::size_t count = reader.count(kLeastInstruction);
    level.reserve(count);
    for (std::size_t i = 0; i < count; ++i) level.push_back(read_instruction(&reader, texts));
  }
  set.program = std::make_shared<Program>(std::move(levels), arena, std::move(constants), file);
  check_operands(*set.program, around(set));
  return set;
}

bool same_ports(const std::vector<NamedSpec>& a, const std::vector<NamedSpec>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const NamedSpec& one, const NamedSpec& other) {
    return one.name == other.name && one.spec.element == other.spec.element;
  });
}

// The programs of one instruction set, by their set of shapes. Throws CpuError if a kernel needs more than that.
std::vector<ShapeSet> read_shape_sets(const std::vector<Section>& sections, const InstructionSet& set,
                                      const Section& data, const std::shared_ptr<const Mapping>& file) {
  std::vector<std::optional<ShapeSet>> found;
  for (const Section& section : sections) {
    if (section.kind != kProgram || section.instruction_set != set.number) continue;
    const char* const content = file->data() + section.offset;
    check(content, section.bytes, section.hash, section.str());
    if (section.shapes >= kMostSections) fail(section.str() + " has the number " + std::to_string(section.shapes));
    if (section.shapes >= found.size()) found.resize(section.shapes + 1);
    if (found[section.shapes]) fail(section.str() + " is there twice");
    try {
      found[section.shapes] = read_program(Reader(content, section.bytes, section.str()), data, file);
    } catch (const std::invalid_argument& error) {
      fail(section.str() + ": " + error.what());
    }
  }
  std::vector<ShapeSet> sets;
  for (std::optional<ShapeSet>& each : found) {
    if (!each) fail(std::string("a set of shapes has no instructions for ") + set.name);
    sets.push_back(std::move(*each));
    const ShapeSet& first = sets.front();
    const ShapeSet& last = sets.back();
    if (!same_ports(last.inputs, first.inputs) || !same_ports(last.outputs, first.outputs)) {
      fail("sets of shapes have different ports");
    }
  }
  return sets;
}

// The pieces of DATA that these programs read.
void check_data(const Mapping& file, const Section& data, const Section* checks, const std::vector<ShapeSet>& sets) {
  const char* const content = file.data() + data.offset;
  if (checks == nullptr) return check(content, data.bytes, data.hash, data.str());
  std::vector<Hash128> hashes(pieces_of(data.bytes));
  const std::size_t bytes = hashes.size() * sizeof(Hash128);
  const char* const told = file.data() + checks->offset;
  if (checks->bytes != bytes || hasher()(told, bytes) != data.hash) fail(checks->str() + " is damaged");
  if (bytes > 0) std::memcpy(hashes.data(), told, bytes);
  std::vector<bool> wanted(hashes.size());
  for (const ShapeSet& set : sets) {
    for (const Constant& constant : set.program->constants()) {
      const std::size_t first = static_cast<std::size_t>(constant.data - content);
      const std::size_t last = std::min((first + constant.bytes) / kPiece, wanted.size() - 1);
      std::fill(wanted.begin() + first / kPiece, wanted.begin() + last + 1, true);
    }
  }
  if (!pieces_have(content, data.bytes, hashes, wanted)) fail(data.str() + " is damaged");
}

// Behind check_data: tables that are damaged would seem to be wrong instructions.
void check_programs(const std::vector<ShapeSet>& sets) {
  for (std::size_t i = 0; i < sets.size(); ++i) {
    try {
      check_instructions(*sets[i].program, around(sets[i]));
    } catch (const std::invalid_argument& error) {
      fail("PROGRAM for set of shapes " + std::to_string(i) + ": " + error.what());
    }
  }
}

}  // namespace

Hash128 check_of(const void* data, std::size_t bytes) {
  std::vector<Hash128> hashes(pieces_of(bytes));
  for (std::size_t i = 0; i < hashes.size(); ++i) hashes[i] = hash_of_piece(static_cast<const char*>(data), bytes, i);
  return hasher()(hashes.data(), hashes.size() * sizeof(Hash128));
}

Artefact load_artefact(const std::string& path) {
  const auto file = std::make_shared<const Mapping>(path);
  const std::vector<Section> sections = read_sections(*file);
  const auto content = [&](const Section& section) { return file->data() + section.offset; };
  const Section* data = nullptr;
  const Section* meta = nullptr;
  const Section* checks = nullptr;
  for (const Section& section : sections) {
    if (section.kind == kData && std::exchange(data, &section) != nullptr) fail("there are two DATA");
    if (section.kind == kMeta && std::exchange(meta, &section) != nullptr) fail("there are two META");
    if (section.kind == kChecks) checks = &section;
    if (section.kind == kReference) check(content(section), section.bytes, section.hash, section.str());
  }
  if (data == nullptr || meta == nullptr) fail("a section is missing");
  check(content(*meta), meta->bytes, meta->hash, meta->str());
  const InstructionSet* const best = &best_instruction_set();
  for (const InstructionSet* set = best; set != kInstructionSets + kInstructionSetCount; ++set) {
    if (!runs(*set)) continue;
    try {
      std::vector<ShapeSet> found = read_shape_sets(sections, *set, *data, file);
      if (found.empty()) continue;
      check_data(*file, *data, checks, found);
      check_programs(found);
      return {std::string(content(*meta), meta->bytes), set->name, std::move(found)};
    } catch (const CpuError&) {  // a more modest one may do
    }
  }
  throw CpuError(std::string("the file has no instructions for ") + best->name +
                 " or less that this CPU runs: compile the model with --isa, for this CPU");
}

}  // namespace ngraph_mxnet

#include "framework/store/safetensors_header.h"

#include <fmt/ranges.h>

#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "framework/fields/bounded_json.h"
#include "framework/store/store_error.h"

namespace strait::store {
namespace {

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<DtypeRow, 10> kDtypes{{{Dtype::f64, "F64", 8},
                                            {Dtype::f32, "F32", 4},
                                            {Dtype::f16, "F16", 2},
                                            {Dtype::bf16, "BF16", 2},
                                            {Dtype::i64, "I64", 8},
                                            {Dtype::i32, "I32", 4},
                                            {Dtype::i16, "I16", 2},
                                            {Dtype::i8, "I8", 1},
                                            {Dtype::u8, "U8", 1},
                                            {Dtype::boolean, "BOOL", 1}}};
// A header comes from outside, so its JSON is limited before it takes memory. Depth 4 is one more
// than a header needs.
constexpr fields::JsonLimits kHeaderLimits{
    .depth = 4, .string_bytes = 1 << 20, .values = 2'000'000};

std::optional<std::uint64_t> checked_product(std::uint64_t left, std::uint64_t right) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(left, right, &product)) return std::nullopt;
  return product;
}

// Every error names one tensor of one file.
class EntryParser {
 public:
  EntryParser(const std::string& file, const std::string& name) : file_(file), name_(name) {}

  TensorInfo parse(const nlohmann::json& entry, std::uint64_t data_bytes) const {
    if (name_.size() > SafetensorsHeader::kMaximumName) {
      refuse(fmt::format("its name has {} bytes, at most {} are allowed", name_.size(),
                         SafetensorsHeader::kMaximumName));
    }
    if (!entry.is_object()) refuse("its entry is not an object");
    TensorInfo info;
    info.name = name_;
    info.dtype = dtype(entry);
    info.shape = shape(entry);
    const std::vector<std::uint64_t> offsets = numbers(entry, "data_offsets");
    if (offsets.size() != 2) refuse("\"data_offsets\" is not a pair");
    info.begin = offsets[0];
    info.end = offsets[1];
    if (info.begin > info.end || info.end > data_bytes) {
      refuse(
          fmt::format("its bytes [{}, {}] do not lie inside the file's {} bytes of data; the file "
                      "is incomplete or damaged: get it again",
                      info.begin, info.end, data_bytes));
    }
    const std::uint64_t needed = size(info);
    if (needed != info.bytes()) {
      refuse(fmt::format("{} needs {} bytes, but {} are given to it", describe(info), needed,
                         info.bytes()));
    }
    return info;
  }

 private:
  Dtype dtype(const nlohmann::json& entry) const {
    const auto found = entry.find("dtype");
    if (found == entry.end() || !found->is_string()) refuse("\"dtype\" is missing");
    const auto& name = found->get_ref<const std::string&>();
    for (const DtypeRow& row : kDtypes) {
      if (row.name == name) return row.dtype;
    }
    refuse(fmt::format("its dtype \"{}\" is none of F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL",
                       name.substr(0, 32)));
  }

  std::vector<std::int64_t> shape(const nlohmann::json& entry) const {
    const std::vector<std::uint64_t> sizes = numbers(entry, "shape");
    if (sizes.size() > SafetensorsHeader::kMaximumRank) {
      refuse(fmt::format("it has {} dimensions, at most {} are allowed", sizes.size(),
                         SafetensorsHeader::kMaximumRank));
    }
    return {sizes.begin(), sizes.end()};
  }

  std::vector<std::uint64_t> numbers(const nlohmann::json& entry, const char* key) const {
    const auto found = entry.find(key);
    if (found == entry.end() || !found->is_array()) refuse(fmt::format("\"{}\" is missing", key));
    std::vector<std::uint64_t> values;
    for (const nlohmann::json& value : *found) {
      constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();
      if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kLargest) {
        refuse(fmt::format("\"{}\" holds something else than whole numbers from 0 on", key));
      }
      values.push_back(value.get<std::uint64_t>());
    }
    return values;
  }

  std::uint64_t size(const TensorInfo& info) const {
    bool empty = false;
    std::optional<std::uint64_t> bytes = bytes_of(info.dtype);
    for (const std::int64_t size : info.shape) {
      empty = empty || size == 0;
      // A size next to a zero must not overflow either, because code that allocates multiplies
      // sizes for strides.
      bytes = checked_product(*bytes, static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1)));
      if (!bytes || *bytes > std::numeric_limits<std::int64_t>::max()) {
        refuse(fmt::format("{} has more bytes than can be counted", describe(info)));
      }
    }
    return empty ? 0 : *bytes;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw StoreError(StoreError::Kind::bad_input, "{}: tensor {}: {}", file_,
                     nlohmann::json(name_.substr(0, 128))
                         .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                     why);
  }

  const std::string& file_;
  const std::string& name_;
};

[[noreturn]] void refuse_header(const std::string& file, const std::string& why) {
  throw StoreError(StoreError::Kind::bad_input, file + ": " + why);
}

std::map<std::string, std::string> parse_metadata(const nlohmann::json& entry,
                                                  const std::string& file) {
  if (!entry.is_object()) refuse_header(file, "\"__metadata__\" is not an object");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) {
      refuse_header(file, "\"__metadata__\" holds something else than strings");
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// Every byte belongs to exactly one tensor: a hole could hide data, and overlapping tensors make a
// small file large. The format demands it.
void check_cover(const std::vector<TensorInfo>& tensors, std::uint64_t data_bytes,
                 const std::string& file) {
  std::uint64_t covered = 0;
  for (const TensorInfo& info : tensors) {
    if (info.begin != covered) {
      refuse_header(file, fmt::format("tensor \"{}\" starts at byte {} of the data where byte {} "
                                      "is next: tensors overlap or leave a hole",
                                      info.name, info.begin, covered));
    }
    covered = info.end;
  }
  if (covered != data_bytes) {
    refuse_header(file, fmt::format("its tensors have {} bytes, but {} bytes of data are there",
                                    covered, data_bytes));
  }
}

[[noreturn]] void refuse_index(const std::string& sentence) {
  throw StoreError(StoreError::Kind::bad_input, sentence);
}

bool is_inside(const std::string& name) {
  const std::filesystem::path relative(name);
  const bool climbs = std::any_of(relative.begin(), relative.end(),
                                  [](const std::filesystem::path& part) { return part == ".."; });
  return !name.empty() && relative.is_relative() && !climbs && name.find('\0') == std::string::npos;
}

}  // namespace

std::string_view name_of(Dtype dtype) { return kDtypes.at(static_cast<std::size_t>(dtype)).name; }
std::size_t bytes_of(Dtype dtype) { return kDtypes.at(static_cast<std::size_t>(dtype)).bytes; }

std::string describe(const TensorInfo& info) {
  return fmt::format("{} [{}]", name_of(info.dtype), fmt::join(info.shape, ", "));
}

SafetensorsHeader SafetensorsHeader::parse(std::string_view text, std::uint64_t data_bytes,
                                           const std::string& file) {
  if (text.size() > kMaximumBytes) {
    refuse_header(file, fmt::format("its header has {} bytes, at most {} are allowed", text.size(),
                                    kMaximumBytes));
  }
  if (text.empty() || text.front() != '{') refuse_header(file, "its header is not a JSON object");
  nlohmann::json root;
  try {
    root = fields::parse_bounded_json(text, kHeaderLimits);
  } catch (const fields::JsonError& error) {
    refuse_header(file, fmt::format("its header is not valid: {}", error.what()));
  }
  SafetensorsHeader header;
  if (root.size() > kMaximumTensors + 1) {
    refuse_header(file, fmt::format("it holds {} tensors, at most {} are allowed", root.size(),
                                    kMaximumTensors));
  }
  for (const auto& [name, entry] : root.items()) {
    if (name == "__metadata__") {
      header.metadata = parse_metadata(entry, file);
    } else {
      header.tensors.push_back(EntryParser(file, name).parse(entry, data_bytes));
    }
  }
  // The order in the file, which check_cover() walks. The name makes it unique for empty tensors.
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorInfo& left, const TensorInfo& right) {
              return std::tie(left.begin, left.end, left.name) <
                     std::tie(right.begin, right.end, right.name);
            });
  check_cover(header.tensors, data_bytes, file);
  return header;
}

std::string SafetensorsHeader::format() const {
  nlohmann::ordered_json root = nlohmann::ordered_json::object();
  if (!metadata.empty()) root["__metadata__"] = metadata;
  for (const TensorInfo& info : tensors) {
    root[info.name] = {{"dtype", name_of(info.dtype)},
                       {"shape", info.shape},
                       {"data_offsets", {info.begin, info.end}}};
  }
  // Metadata may contain a file name in another encoding.
  std::string text = root.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  // Padded, so that the data begins at a multiple of 8 in a mapped file.
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string bytes;
  for (std::uint64_t rest = text.size(), i = 0; i < 8; ++i, rest >>= 8) {
    bytes += static_cast<char>(rest & 0xff);
  }
  return bytes + text;
}

WeightIndex parse_weight_index(std::string_view text, const std::string& file) {
  nlohmann::json root;
  try {
    root = fields::parse_bounded_json(text);
  } catch (const fields::JsonError& error) {
    refuse_index(fmt::format("{} is not valid: {}", file, error.what()));
  }
  const auto map = root.is_object() ? root.find("weight_map") : root.end();
  if (!root.is_object() || map == root.end() || !map->is_object() || map->empty()) {
    refuse_index(fmt::format("{} has no \"weight_map\" of tensor names to files", file));
  }
  WeightIndex files;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) {
      refuse_index(fmt::format("{}: the file of tensor \"{}\" is not a name", file, tensor));
    }
    const auto& name = shard.get_ref<const std::string&>();
    if (!is_inside(name)) {
      refuse_index(
          fmt::format("{}: the shard \"{}\" is not a name inside the directory", file, name));
    }
    files.emplace(tensor, name);
  }
  return files;
}

}  // namespace strait::store

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace strait::store {

// Element types of a safetensors file that are read and written. Others are refused by name.
enum class Dtype : std::uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };

std::string_view name_of(Dtype dtype);  // as in the file: "BF16"
std::size_t bytes_of(Dtype dtype);

struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // in the data after the header
  std::uint64_t end = 0;

  std::uint64_t bytes() const { return end - begin; }
  bool operator==(const TensorInfo&) const = default;
};

std::string describe(const TensorInfo& info);  // "F32 [768, 3072]"

// The header of a safetensors file as a value: pure text in, value out, no files, no tensors. An
// accepted header is safe to read by: every tensor has its own bytes, and they are inside the data.
struct SafetensorsHeader {
  static constexpr std::uint64_t kMaximumBytes = 100'000'000;
  static constexpr std::size_t kMaximumTensors = 100'000;
  static constexpr std::size_t kMaximumName = 512;
  static constexpr std::size_t kMaximumRank = 8;

  std::vector<TensorInfo> tensors;              // in the order of their data
  std::map<std::string, std::string> metadata;  // "__metadata__"

  // `text` is what follows the eight length bytes, `data_bytes` is the size of what follows the
  // text. Offsets must cover the data exactly: no hole, no overlap, nothing left over. Throws
  // StoreError bad_input that starts with `file` and names the tensor.
  static SafetensorsHeader parse(std::string_view text, std::uint64_t data_bytes,
                                 const std::string& file);

  // Length bytes and text, padded with spaces so that the data starts at a multiple of eight. Uses
  // the tensors' offsets as they are.
  std::string format() const;
};

// The file of each tensor, by name, relative to the directory of the index.
using WeightIndex = std::map<std::string, std::string>;

// Parses a Hugging Face model.safetensors.index.json; errors name `file`. StoreError bad_input: it
// has no map of tensors to files, or a file is outside of the directory. Pure.
WeightIndex parse_weight_index(std::string_view text, const std::string& file);

}  // namespace strait::store

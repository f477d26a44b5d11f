#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strait::store {

// Where a tensor lies in a file, and the hash of its bytes.
struct TensorHash {
  std::string name;
  std::uint64_t begin = 0;  // from the start of the file
  std::uint64_t end = 0;
  std::string hash;
  bool operator==(const TensorHash&) const = default;
};

// What one process's files of a checkpoint hold. The manifest says of a file whether it is damaged,
// this says which tensors are. A value; text in both directions is pure.
struct TensorHashes {
  std::vector<std::pair<std::string, std::vector<TensorHash>>> files;  // by name of the file

  bool operator==(const TensorHashes&) const = default;

  // StoreError corrupt that starts with `file`.
  static TensorHashes parse(std::string_view text, const std::string& file);
  std::string format() const;
};

}  // namespace strait::store

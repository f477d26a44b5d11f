#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strait::store {

// The position of a tensor in a file, and the hash of its bytes.
struct TensorHash {
  std::string name;
  std::uint64_t begin = 0;  // from the start of the file
  std::uint64_t end = 0;
  std::string hash;
  bool operator==(const TensorHash&) const = default;
};

// The tensors in one process's files of a checkpoint. The manifest shows whether a file is damaged;
// this shows which tensors are. A value; conversion to and from text is pure.
struct TensorHashes {
  std::vector<std::pair<std::string, std::vector<TensorHash>>> files;  // by file name

  bool operator==(const TensorHashes&) const = default;

  // StoreError corrupt that starts with `file`.
  static TensorHashes parse(std::string_view text, const std::string& file);
  std::string format() const;
};

}  // namespace strait::store

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <utility>

namespace strait::models {

// Keys and values that the attention layers have seen, for generation without gradients. All rows
// have the same length. All layers of a model share it; each appends once per pass.
class KeyValueCache {
 public:
  explicit KeyValueCache(std::int64_t capacity) : capacity_(capacity) {}

  // Appends [rows, count, heads, width] for `layer`. Returns all keys and values of that layer as
  // views that stay valid after its next append.
  std::pair<at::Tensor, at::Tensor> append(int layer, const at::Tensor& keys,
                                           const at::Tensor& values);

  std::int64_t length() const;  // number of tokens that every layer has seen
  std::int64_t capacity() const { return capacity_; }

 private:
  struct Entry {
    at::Tensor keys;
    at::Tensor values;
    std::int64_t length = 0;
  };
  std::int64_t capacity_;
  std::map<int, Entry> entries_;
};

}  // namespace strait::models

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <utility>

namespace strait::models {

// Keys and values that the attention layers have seen, and states of recurrent layers, for
// generation without gradients. All rows
// have the same length. All layers of a model share it; each appends once per pass.
class KeyValueCache {
 public:
  explicit KeyValueCache(std::int64_t capacity) : capacity_(capacity) {}

  // Appends [rows, count, heads, width] for `layer`. Returns all keys and values of that layer as
  // views that stay valid after its next append.
  std::pair<at::Tensor, at::Tensor> append(int layer, const at::Tensor& keys,
                                           const at::Tensor& values);

  // What a recurrent layer remembers of the tokens that it has seen. Undefined: it has seen none.
  struct Recurrent {
    at::Tensor convolved;  // the last inputs of its convolution, [rows, count, channels]
    at::Tensor state;      // [rows, heads, key width, width]
  };
  Recurrent& recurrent(int layer) { return recurrent_[layer]; }

  // Number of tokens that every layer with keys has seen.
  std::int64_t length() const;
  std::int64_t capacity() const { return capacity_; }

 private:
  struct Entry {
    at::Tensor keys;
    at::Tensor values;
    std::int64_t length = 0;
  };
  std::int64_t capacity_;
  std::map<int, Entry> entries_;
  std::map<int, Recurrent> recurrent_;
};

}  // namespace strait::models

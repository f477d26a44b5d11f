#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "models/cache_format.h"

namespace strait::models {

// Keys and values of one sequence that the attention layers have seen, and states of recurrent
// layers, for generation without gradients. All layers of a model share it; each appends once per
// pass.
class SequenceCache {
 public:
  explicit SequenceCache(std::int64_t capacity, CacheFormat format = CacheFormat::float32)
      : capacity_(capacity), format_(format) {}

  // Appends [1, count, ...] each for `layer`, always the same tensors: keys and values, or what
  // they are made from, in the format of the cache. Returns all that the layer has appended, as
  // views that stay valid after its next append.
  std::vector<at::Tensor> append(int layer, const std::vector<at::Tensor>& values);

  // What a recurrent layer remembers of the tokens that it has seen. Undefined: it has seen none.
  struct Recurrent {
    at::Tensor convolved;  // the last inputs of its convolution, [1, count, channels]
    at::Tensor state;      // [1, heads, key width, width]
  };
  Recurrent& recurrent(int layer) { return recurrent_[layer]; }

  // Tokens of the passes so far, which make_pass() counts.
  std::int64_t length() const { return length_; }
  void add_length(std::int64_t count) { length_ += count; }
  std::int64_t capacity() const { return capacity_; }
  CacheFormat format() const { return format_; }

 private:
  struct Entry {
    std::vector<at::Tensor> values;
    std::int64_t length = 0;
  };
  std::int64_t capacity_;
  CacheFormat format_;
  std::int64_t length_ = 0;
  std::map<int, Entry> entries_;
  std::map<int, Recurrent> recurrent_;
};

// The sequences that a pass extends, whose new tokens follow each other in its rows. Borrows them.
class KeyValueCache {
 public:
  struct Extension {
    SequenceCache* sequence = nullptr;
    std::int64_t count = 0;  // new tokens
  };
  explicit KeyValueCache(std::vector<Extension> extensions) : extensions_(std::move(extensions)) {}

  const std::vector<Extension>& extensions() const { return extensions_; }
  // Of all its sequences.
  CacheFormat format() const { return extensions_.front().sequence->format(); }

  // Whether every sequence goes on by one token, in float32 on the CPU: then threads can share
  // them.
  bool extends_by_tokens(const at::Tensor& values) const;

  // `compute` for each sequence, of its part of the values, as [1, count, ...] each. Returns its
  // results [1, count, ...] in the shape of the pass.
  using SequenceFunction =
      std::function<at::Tensor(SequenceCache& sequence, const std::vector<at::Tensor>& values)>;
  at::Tensor by_sequence(const std::vector<at::Tensor>& values,
                         const SequenceFunction& compute) const;

 private:
  std::vector<Extension> extensions_;
};

}  // namespace strait::models

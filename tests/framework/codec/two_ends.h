#pragma once

#include <ATen/core/Tensor.h>

#include <random>

#include "framework/codec/sample_decoder.h"
#include "framework/codec/sample_encoder.h"

namespace strait::codec {

using Entry = std::vector<std::byte>;
using Entries = std::map<std::int64_t, Entry>;

// What a cache holds, read without visiting anything.
Entries entries_of(const ActivationCache& cache);

// A copy of what a checkpoint would hold.
using SavedCache = std::map<std::string, at::Tensor>;
SavedCache save(const ActivationCache& cache);
void restore(ActivationCache& cache, const SavedCache& saved);

// Turns over one bit of a sample's entry; false where it is not held.
bool flip_bit(ActivationCache& cache, std::int64_t sample, std::size_t bit);

// Epochs of all samples, each in an order of its own, `per_step` of them a step.
UseOrder shuffled_epochs(std::int64_t samples, std::int64_t per_step, std::uint64_t seed);

// One message of rows. Each row is one document of `length(sample)` tokens.
struct Batch {
  TensorHeader header;
  at::Tensor values;
};

// The tensor as it is used, and what it took.
struct Passed {
  at::Tensor values;
  std::size_t missing = 0;  // rows that were asked for
  Entry payload;            // of the message
};

// Sends the message and, where rows are missing, asks for them.
Passed pass(Encoder& encoder, Decoder& decoder, const Batch& batch);

// Both ends of one direction of one boundary, and what a link between them does.
class TwoEnds {
 public:
  TwoEnds(const SampleEncoderOptions& options, const std::optional<ActivationCacheOptions>& cache,
          at::ScalarType result = at::kFloat);

  // Sends the message and, where rows are missing, asks for them: the tensor as it is used.
  at::Tensor pass(const Batch& batch);
  // Encoded, and lost with the link.
  void lose(const Batch& batch);

  SampleEncoder& encoder() { return *encoder_; }
  SampleDecoder& decoder() { return *decoder_; }
  std::size_t last_missing() const { return last_missing_; }
  std::size_t last_payload() const { return last_payload_; }

 private:
  std::unique_ptr<SampleEncoder> encoder_;
  std::unique_ptr<SampleDecoder> decoder_;
  std::size_t last_missing_ = 0;
  std::size_t last_payload_ = 0;
};

// A header for these samples, every row full.
TensorHeader full_rows(store::Step step, std::int32_t micro_batch, std::int64_t tokens,
                       std::int64_t width, const std::vector<std::int64_t>& samples);

// Normally distributed, the same on every machine's same libtorch; the seed is all that it takes.
at::Tensor random_values(at::IntArrayRef shape, std::uint64_t seed);

}  // namespace strait::codec

#pragma once

#include "framework/codec/activation_cache.h"
#include "framework/codec/codec.h"
#include "framework/codec/sample_encoder.h"
#include "framework/codec/transform_state.h"

namespace strait::codec {

struct TransformEncoderOptions {
  Direction direction = Direction::forward;
  // The wanted error of changes and gradients, and that of values without a base: as that of this
  // many bits in groups. 16: of bfloat16.
  int bits = 6;
  int first_bits = 6;
  int group = 64;         // of a message that goes in groups
  std::uint64_t key = 0;  // of random draws
};

// Codes values in directions in which they are independent: the eigenvectors of their covariance.
// One step for all levels of a message, as large as the wanted error allows, and adaptive models
// spend bits only where energy is. MESSAGE.md has the bytes.
//
// Entries of the cache are whole numbers, in coordinates of the basis. Both ends add the levels to
// them, so they agree bit for bit, whatever a product of matrices rounds. A new basis begins a new
// generation: older entries are not used.
//
// Rows with a base are coded as the change from their entry. The error of activations is held
// against the energy of a usual token (the harmonic mean), since the next norm scales each token by
// itself, and it need not be below that of a cache miss: an unchanged row costs almost nothing.
// Gradients are not cached. A random number is added to each before it is rounded and subtracted at
// the other end, which leaves no bias in any direction.
//
// A message that would be larger than in groups goes in groups, as does one with values that are
// not finite or do not fit entries; its rows are then not cached.
class TransformEncoder final : public Encoder {
 public:
  // The cache holds the state of this end, and no entries of gradients.
  TransformEncoder(const TransformEncoderOptions& options, std::unique_ptr<ActivationCache> cache);

  // Not for evaluation (std::logic_error).
  void encode(const TensorHeader& header, const at::Tensor& tensor, net::Frame& frame) override;
  void encode_whole(const TensorHeader& header, net::Frame& frame) override;
  Traffic traffic() const override;
  ActivationCache* cache() { return cache_.get(); }

 private:
  bool is_gradient() const { return options_.direction == Direction::backward; }
  void begin_step(store::Step step);
  void begin_basis(const at::Tensor& values);
  void find_entries(const TensorHeader& header);
  double wanted_energy(const at::Tensor& values, const at::Tensor& changes) const;
  bool round(const TensorHeader& header, const at::Tensor& changes, double wanted);
  void keep_entries(const TensorHeader& header);
  std::size_t bytes_in_groups(const TensorHeader& header) const;
  bool encode_transformed(const TensorHeader& header, const at::Tensor& tensor, net::Frame& frame);
  void count(const at::Tensor& changes, const at::Tensor& values);

  TransformEncoderOptions options_;
  std::unique_ptr<ActivationCache> cache_;
  SampleEncoder groups_;  // without a cache
  std::optional<store::Step> step_;
  TransformState state_;
  // Of the current message.
  TransformMessage message_;
  std::vector<std::int64_t> lengths_;  // of its rows
  at::Tensor entries_;                 // float32 [tokens, width], whole numbers; then the new ones
  double error_squares_ = 0;
  Traffic traffic_;
};

// The traffic of an end with what it sent in groups and its cache's levels.
Traffic total_traffic(Traffic own, const Traffic& groups, const ActivationCache& cache);

}  // namespace strait::codec

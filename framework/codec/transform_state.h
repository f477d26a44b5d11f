#pragma once

#include "framework/codec/activation_cache.h"
#include "framework/codec/transform_format.h"

namespace strait::codec {

struct TransformMoments;

// A unit is this share of the step of a cache miss, so that smaller steps remain for changes.
inline constexpr double kUnitOfStep = 0.125;

// A basis in use. Threads: one at a time.
class TransformBasis {
 public:
  explicit TransformBasis(BasisPart part);

  const BasisPart& part() const { return part_; }
  std::int64_t width() const { return std::ssize(part_.spread); }
  const at::Tensor& bytes() const { return bytes_; }  // as it is sent

  // Float32 [tokens, width]: values from coordinates, and back. expand() is the exact inverse of
  // project() but for rounding: columns that are nearly orthogonal make no error.
  at::Tensor expand(const at::Tensor& coordinates) const;
  at::Tensor project(const at::Tensor& values);

 private:
  friend std::optional<BasisPart> better_basis(const TransformMoments& moments,
                                               const TransformBasis& basis, double error,
                                               double bits);

  BasisPart part_;
  at::Tensor bytes_;
  at::Tensor mean_;     // float32 [width]
  at::Tensor columns_;  // float32 [blocks, block, block], with scales; undefined without blocks
  at::Tensor inverse_;  // computed by the first project()
};

// What an encoder learns of the values that it codes: sums over some tokens of each message.
// Tensors are replaced and never changed, so a copy of this is a snapshot.
struct TransformMoments {
  at::Tensor products;  // float32 [blocks, block, block]: of changes, scaled to a mean square of 1
  at::Tensor sums;      // float32 [width]: of the same
  at::Tensor means;     // float32 [width]: of coordinates
  double largest = 0;   // the largest norm of a token's coordinates of late
  double step = 0;      // the smallest step that a message of activations wanted; 0: none did
  std::int64_t sampled = 0;  // tokens in these sums
  std::int64_t tokens = 0;   // tokens that were coded since the basis began
};

std::vector<std::int64_t> products_shape(std::int64_t width);

// `changes` and `coordinates`: float32 [tokens, width].
void learn(TransformMoments& moments, const at::Tensor& changes, const at::Tensor& coordinates);

// The basis that these moments ask for, if it saves more bits than its own and these while as many
// tokens are sent again, or if the unit of the one in use is too coarse for the wanted steps.
// `error`: the wanted one, as a share of the energy. Pure.
std::optional<BasisPart> better_basis(const TransformMoments& moments, const TransformBasis& basis,
                                      double error, double bits);

// The state of one end of codec `transform` in addition to the entries of its cache, which saves it
// with them: the basis, and what an encoder learns for the next one.
struct TransformState {
  std::uint8_t generation = 0;  // of the basis; 0: nothing was sent
  bool sent = true;             // an encoder's: whether the other end has it
  std::unique_ptr<TransformBasis> basis;
  std::int64_t steps = 0;  // that an encoder has begun
  TransformMoments moments;

  void set_basis(std::uint8_t of_generation, BasisPart part);
  void begin_generation(BasisPart part);  // which the other end does not have yet
  void save_to(ActivationCache& cache) const;
  // The state that the cache holds; the first one of its width if it holds none. Throws StoreError.
  static TransformState load(const ActivationCache& cache);
};

}  // namespace strait::codec

#pragma once

#include <memory>

#include "framework/codec/activation_cache.h"
#include "framework/codec/transform_basis.h"

namespace strait::codec {

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

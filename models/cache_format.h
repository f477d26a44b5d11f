#pragma once

#include <cstdint>

namespace strait::models {

// How a generation keeps keys and values, or the latents that they are made from: in float32, or in
// 8 bits with a scale for the vector of each token and head (kernels/quantized_heads.h).
enum class CacheFormat : std::uint8_t { float32, int8 };

// What a generation keeps of a token.
struct CachedToken {
  std::int64_t values = 0;
  std::int64_t vectors = 0;  // that these values are in

  std::int64_t bytes(CacheFormat format) const {
    return format == CacheFormat::int8 ? values + 4 * vectors : 4 * values;
  }
};

}  // namespace strait::models

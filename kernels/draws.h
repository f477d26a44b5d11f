#pragma once

#include <cstdint>

// Random draws for a value: a hash of a key and of the value's index in its row. The same on the
// CPU and the GPU.
#ifdef __CUDACC__
#define STRAIT_ON_BOTH __host__ __device__
#else
#define STRAIT_ON_BOTH
#endif

namespace strait::kernels {

// One step of SplitMix64; both halves of the result are used in every draw.
STRAIT_ON_BOTH inline std::uint64_t draw_words(std::uint64_t key) {
  key += 0x9e3779b97f4a7c15ULL;
  key = (key ^ (key >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  key = (key ^ (key >> 27U)) * 0x94d049bb133111ebULL;
  return key ^ (key >> 31U);
}

inline constexpr std::uint32_t kDrawStep = 0x9E3779B1;
inline constexpr std::uint32_t kDrawMix1 = 0x2C1B3C6D;
inline constexpr std::uint32_t kDrawMix2 = 0x297A2D39;
inline constexpr float kSignedDrawUnit = 0x1p-32F;

STRAIT_ON_BOTH inline std::uint32_t hash_of(std::uint64_t words, std::uint32_t index) {
  std::uint32_t hash = index * kDrawStep + static_cast<std::uint32_t>(words);
  hash = (hash ^ (hash >> 15U)) * kDrawMix1;
  hash = (hash ^ (hash >> 12U)) + static_cast<std::uint32_t>(words >> 32U);
  hash *= kDrawMix2;
  return hash ^ (hash >> 15U);
}

// 24 bits for the value with this index in the row.
STRAIT_ON_BOTH inline std::uint32_t draw_of(std::uint64_t words, std::uint32_t index) {
  return hash_of(words, index) >> 8U;
}

// The values of a group are in 16 columns, whatever the vector width of a processor. Sums run down
// a column. So does one hash per four values, because a hash per value would take a fifth of an
// encoder's time. Each of the four uses it rotated by one more byte.
inline constexpr int kColumns = 16;
inline constexpr int kHashedValues = 4 * kColumns;

// For the value with index `first` + `i` in the row; `first` is the first of its group. As a float
// times kSignedDrawUnit it is uniform in [-0.5, 0.5].
STRAIT_ON_BOTH inline std::int32_t signed_draw_of(std::uint64_t words, std::uint32_t first, int i) {
  const int hashed = i / kHashedValues * kHashedValues + i % kColumns;
  const std::uint32_t hash = hash_of(words, first + static_cast<std::uint32_t>(hashed));
  const auto bits = static_cast<unsigned>(i % kHashedValues / kColumns * 8);
  return static_cast<std::int32_t>(bits == 0 ? hash : hash >> bits | hash << (32 - bits));
}

}  // namespace strait::kernels

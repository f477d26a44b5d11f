// Tiles of sums that stay in registers while inputs and weights go by. Included once per
// instruction set (Highway), so instead of #pragma once the guard is toggled with the set.
#if defined(STRAIT_KERNELS_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRAIT_KERNELS_TILES_INL_H_
#undef STRAIT_KERNELS_TILES_INL_H_
#else
#define STRAIT_KERNELS_TILES_INL_H_
#endif

#include <hwy/cache_control.h>

#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

// As many sums as the instruction set has registers for.
constexpr int kTileRows = 6;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
constexpr int kPanelVectors = 2;
#else
constexpr int kPanelVectors = 4;
#endif
HWY_INLINE std::int64_t panel_width() { return kPanelVectors * lane_count(); }

// Fewer rows read the matrix as it lies. For these and more it is copied to panels first, a few
// columns at a time: panels are read from the nearest cache, and again for every tile of rows. Both
// ways add the same values in the same order.
constexpr std::int64_t kManyRows = 8;

constexpr std::int64_t kLine = 16;  // values in a line of a cache
// Memory of the thread for packed values, which stays. Whole lines, so that no vector is in two.
HWY_INLINE float* room_for(std::vector<float>& memory, std::int64_t count) {
  if (std::ssize(memory) < count + kLine) memory.resize(static_cast<std::size_t>(count + kLine));
  const auto past = reinterpret_cast<std::uintptr_t>(memory.data()) / sizeof(float) % kLine;
  return memory.data() + (kLine - past) % kLine;
}

// A part of a matrix that tiles bring into the cache before it is copied, each the next lines.
struct Block {
  const float* begin = nullptr;
  std::int64_t rows = 0;  // 0 or below: none
  std::int64_t columns = 0;
  std::int64_t stride = 0;
};
class ReadAhead {
 public:
  ReadAhead(const Block& block, std::int64_t tiles)
      : block_(block),
        lines_((block.columns + kLine - 1) / kLine),
        share_(block.rows * lines_ / tiles + 1) {}
  HWY_INLINE void read_part() {
    for (std::int64_t i = 0; i < share_ && row_ < block_.rows; ++i) {
      hwy::Prefetch(block_.begin + row_ * block_.stride + line_ * kLine);
      if (++line_ == lines_) line_ = 0, ++row_;
    }
  }

 private:
  Block block_;
  std::int64_t lines_;
  std::int64_t share_;
  std::int64_t row_ = 0;
  std::int64_t line_ = 0;
};

// Rows whose inputs, each times a row of weights, are added to a block of sums.
struct Tile {
  const float* inputs = nullptr;
  std::int64_t input_stride = 0;
  const float* weights = nullptr;
  std::int64_t weight_stride = 0;
  float* sums = nullptr;
  std::int64_t sum_stride = 0;
  std::int64_t steps = 0;
  std::int64_t columns = 0;  // fewer than a vector has
};

// What sums begin with, and which columns they have.
enum class Begin { zero, sums };
enum class Columns { whole_vectors, few };

template <int kRows, int kVectors, Begin kBegin, Columns kColumns>
HWY_INLINE void add_tile(const Tile& tile) {
  constexpr bool kWhole = kColumns == Columns::whole_vectors;
  const auto load = [&](const float* from) HWY_ATTR {
    return kWhole ? load_lanes(from) : load_upto(from, tile.columns);
  };
  Vector sums[kRows][kVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = kBegin == Begin::zero ? hn::Zero(Lanes())
                                         : load(tile.sums + r * tile.sum_stride + v * lane_count());
    }
  }
  for (std::int64_t k = 0; k < tile.steps; ++k) {
    const float* const weights = tile.weights + k * tile.weight_stride;
    Vector weight[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) weight[v] = load(weights + v * lane_count());
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const Vector value = hn::Set(Lanes(), tile.inputs[r * tile.input_stride + k]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(value, weight[v], sums[r][v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* const to = tile.sums + r * tile.sum_stride + v * lane_count();
      if (kWhole) {
        store_lanes(sums[r][v], to);
      } else {
        store_upto(sums[r][v], to, tile.columns);
      }
    }
  }
}

HWY_INLINE std::int64_t tiles_of(std::int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

// `add` for six rows at a time, and for those that are left.
template <class Add>
HWY_INLINE void for_tiles(std::int64_t rows, const Add& add) {
  std::int64_t row = 0;
  for (; row + kTileRows <= rows; row += kTileRows) {
    add(std::integral_constant<int, kTileRows>(), row);
  }
  const auto add_rest = [&](auto count) HWY_ATTR {
    if (row + count > rows) return;
    add(count, row);
    row += count;
  };
  add_rest(std::integral_constant<int, 4>());
  add_rest(std::integral_constant<int, 2>());
  add_rest(std::integral_constant<int, 1>());
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dot_product_cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <vector>

#include "kernels/row_product.h"
#include "kernels/tiles-inl.h"

// A value of the product is the sum of the lanes of a vector of sums.
HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3 || \
    HWY_TARGET == HWY_SCALAR
constexpr int kDotRows = 2;
constexpr int kDotOutputs = 4;
#else
constexpr int kDotRows = 4;
constexpr int kDotOutputs = 6;
#endif
// The lanes of a vector, added in a tree: the upper half to the lower one, and so on.
template <class D>
HWY_INLINE float tree_sum(D /*lanes*/, hn::Vec<D> values) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(D()) > 1) {
    const hn::Half<D> half;
    return tree_sum(half, hn::Add(hn::LowerHalf(half, values), hn::UpperHalf(half, values)));
  }
#endif
  return hn::GetLane(values);
}

// tree_sum() of every value of a tile, whose lanes' sums are [lanes, count].
HWY_INLINE void add_lanes(float* sums, std::int64_t count) {
  for (std::int64_t half = lane_count() / 2; half > 0; half /= 2) {
    for (std::int64_t i = 0; i < half * count; i += lane_count()) {
      const Vector upper = load_lanes(sums + half * count + i);
      store_lanes(hn::Add(load_lanes(sums + i), upper), sums + i);
    }
  }
}

// ---- few rows: the matrix is read as it lies ----------------------------------------------------

template <int kRows, int kOutputs>
HWY_INLINE void dot_tile(const cpu::RowProduct& all, std::int64_t row, std::int64_t output) {
  const std::int64_t width = all.width;
  const float* const inputs = all.input + row * width;
  const float* const weights = all.matrix + output * width;
  Vector sums[kRows][kOutputs];
  for (int r = 0; r < kRows; ++r) {
    for (int o = 0; o < kOutputs; ++o) sums[r][o] = hn::Zero(Lanes());
  }
  const auto add = [&](std::int64_t k, auto load) HWY_ATTR {
    Vector values[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) values[r] = load(inputs + r * width + k);
#pragma GCC unroll 6
    for (int o = 0; o < kOutputs; ++o) {
      const Vector weight = load(weights + o * width + k);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sums[r][o] = hn::MulAdd(values[r], weight, sums[r][o]);
    }
  };
  std::int64_t k = 0;
  for (; k + lane_count() <= width; k += lane_count()) {
    add(k, [](const float* from) HWY_ATTR { return load_lanes(from); });
  }
  if (k < width) {
    add(k, [&](const float* from) HWY_ATTR { return load_upto(from, width - k); });
  }
  for (int o = 0; o < kOutputs; ++o) {
    const float bias = all.bias == nullptr ? 0 : all.bias[output + o];
    for (int r = 0; r < kRows; ++r) {
      all.product[(row + r) * all.outputs + output + o] = tree_sum(Lanes(), sums[r][o]) + bias;
    }
  }
}

template <int kOutputs>
HWY_INLINE void dot_rows(const cpu::RowProduct& all, std::int64_t output) {
  std::int64_t row = 0;
  for (; row + kDotRows <= all.rows; row += kDotRows)
    dot_tile<kDotRows, kOutputs>(all, row, output);
  for (; row < all.rows; ++row) dot_tile<1, kOutputs>(all, row, output);
}

void dot_columns(const cpu::RowProduct& all, std::int64_t first, std::int64_t last) {
  std::int64_t output = first;
  for (; output + kDotOutputs <= last; output += kDotOutputs) dot_rows<kDotOutputs>(all, output);
  for (; output < last; ++output) dot_rows<1>(all, output);
}

// ---- many rows: each lane's sums are those of a tile --------------------------------------------

// The block of 4 × 4 whose rows become columns.
HWY_INLINE void transpose_block(const float* from, std::int64_t from_stride, float* to,
                                std::int64_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) to[j * to_stride + i] = from[i * from_stride + j];
  }
#else
  const hn::CappedTag<float, 4> four;
  const auto row0 = hn::LoadU(four, from);
  const auto row1 = hn::LoadU(four, from + from_stride);
  const auto row2 = hn::LoadU(four, from + 2 * from_stride);
  const auto row3 = hn::LoadU(four, from + 3 * from_stride);
  const auto even_lower = hn::InterleaveLower(four, row0, row2);
  const auto even_upper = hn::InterleaveUpper(four, row0, row2);
  const auto odd_lower = hn::InterleaveLower(four, row1, row3);
  const auto odd_upper = hn::InterleaveUpper(four, row1, row3);
  hn::StoreU(hn::InterleaveLower(four, even_lower, odd_lower), four, to);
  hn::StoreU(hn::InterleaveUpper(four, even_lower, odd_lower), four, to + to_stride);
  hn::StoreU(hn::InterleaveLower(four, even_upper, odd_upper), four, to + 2 * to_stride);
  hn::StoreU(hn::InterleaveUpper(four, even_upper, odd_upper), four, to + 3 * to_stride);
#endif
}

// Values [rows, columns] to [columns, rows].
HWY_INLINE void transpose(const float* from, std::int64_t from_stride, std::int64_t rows,
                          std::int64_t columns, float* to, std::int64_t to_stride) {
  const std::int64_t whole_rows = rows / 4 * 4;
  const std::int64_t whole_columns = columns / 4 * 4;
  for (std::int64_t i = 0; i < whole_rows; i += 4) {
    for (std::int64_t j = 0; j < whole_columns; j += 4) {
      transpose_block(from + i * from_stride + j, from_stride, to + j * to_stride + i, to_stride);
    }
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j) {
      to[j * to_stride + i] = from[i * from_stride + j];
    }
  }
}

// Inputs and outputs that are packed for a width. Lengths that are powers of two would lie in the
// same few lines of a cache.
struct Packed {
  explicit Packed(std::int64_t width)
      : steps((width + lane_count() - 1) / lane_count()),
        lane_stride((steps + 1) * panel_width()),
        row_stride(steps * lane_count() + kMostLanes) {}
  std::int64_t panel_values() const { return lane_stride * lane_count(); }

  std::int64_t steps;        // vectors that an input has
  std::int64_t lane_stride;  // of a panel
  std::int64_t row_stride;   // of inputs
};

// A row of inputs to [lanes, steps]: those that a lane of its vectors has, one after the other.
HWY_INLINE void pack_inputs(const cpu::RowProduct& all, std::int64_t row, const Packed& packed,
                            float* to) {
  const std::int64_t lanes = lane_count();
  const float* const from = all.input + row * all.width;
  const std::int64_t whole = all.width / lanes;
  transpose(from, lanes, whole, lanes, to, packed.steps);
  for (std::int64_t lane = 0; whole < packed.steps && lane < lanes; ++lane) {
    const std::int64_t k = whole * lanes + lane;
    to[lane * packed.steps + whole] = k < all.width ? from[k] : 0;
  }
}

// Outputs of the matrix to [lanes, steps, panel width]; inputs and outputs that are missing are
// zeros.
HWY_INLINE void pack_outputs(const cpu::RowProduct& all, std::int64_t output, std::int64_t outputs,
                             const Packed& packed, float* to) {
  const std::int64_t lanes = lane_count();
  const float* const from = all.matrix + output * all.width;
  const std::int64_t whole = outputs < panel_width() ? 0 : all.width / lanes;
  if (whole < packed.steps) std::fill(to, to + packed.panel_values(), 0.0F);
  constexpr std::int64_t kSteps = 8;  // so that lines of both memories stay in the nearest cache
  for (std::int64_t first = 0; first < whole; first += kSteps) {
    const std::int64_t last = std::min(first + kSteps, whole);
    for (std::int64_t o = 0; o < panel_width(); o += 4) {
      for (std::int64_t step = first; step < last; ++step) {
        transpose(from + o * all.width + step * lanes, all.width, 4, lanes,
                  to + step * panel_width() + o, packed.lane_stride);
      }
    }
  }
  for (std::int64_t k = whole * lanes; k < all.width; ++k) {
    float* const own = to + k % lanes * packed.lane_stride + k / lanes * panel_width();
    for (std::int64_t o = 0; o < outputs; ++o) own[o] = from[o * all.width + k];
  }
}

HWY_INLINE void store_tile(const cpu::RowProduct& all, std::int64_t row, std::int64_t rows,
                           std::int64_t output, std::int64_t outputs, const float* sums) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float* const to = all.product + (row + r) * all.outputs + output;
    const float* const own = sums + r * panel_width();
    for (std::int64_t o = 0; o < outputs; ++o) {
      to[o] = own[o] + (all.bias == nullptr ? 0 : all.bias[output + o]);
    }
  }
}

void dot_panels(const cpu::RowProduct& all, std::int64_t first, std::int64_t last) {
  thread_local std::vector<float> input_memory;
  thread_local std::vector<float> panel_memory;
  const Packed packed(all.width);
  float* const inputs = room_for(input_memory, all.rows * packed.row_stride);
  float* const panel = room_for(panel_memory, packed.panel_values());
  for (std::int64_t row = 0; row < all.rows; ++row) {
    pack_inputs(all, row, packed, inputs + row * packed.row_stride);
  }
  for (std::int64_t output = first; output < last; output += panel_width()) {
    const std::int64_t outputs = std::min(panel_width(), last - output);
    pack_outputs(all, output, outputs, packed, panel);
    const std::int64_t next = output + outputs;
    ReadAhead ahead(
        {all.matrix + next * all.width, std::min(panel_width(), last - next), all.width, all.width},
        tiles_of(all.rows) * lane_count());
    for_tiles(all.rows, [&](auto rows, std::int64_t row) HWY_ATTR {
      HWY_ALIGN float sums[kMostLanes * kTileRows * kPanelVectors * kMostLanes];
      const std::int64_t count = rows * panel_width();
      Tile tile;
      tile.input_stride = packed.row_stride;
      tile.weight_stride = tile.sum_stride = panel_width();
      tile.steps = packed.steps;
      for (std::int64_t lane = 0; lane < lane_count(); ++lane) {
        ahead.read_part();
        tile.inputs = inputs + row * packed.row_stride + lane * packed.steps;
        tile.weights = panel + lane * packed.lane_stride;
        tile.sums = sums + lane * count;
        add_tile<rows, kPanelVectors, Begin::zero, Columns::whole_vectors>(tile);
      }
      add_lanes(sums, count);
      store_tile(all, row, rows, output, outputs, sums);
    });
  }
}

// Rows that are packed together: few enough for a cache, many enough to be worth packing outputs.
constexpr std::int64_t kRowsTogether = 96;

void dot_all(const cpu::RowProduct& all, std::int64_t first, std::int64_t last) {
  for (std::int64_t row = 0; row < all.rows; row += kRowsTogether) {
    cpu::RowProduct some = all;
    some.rows = std::min(kRowsTogether, all.rows - row);
    some.input += row * all.width;
    some.product += row * all.outputs;
    if (some.rows >= kManyRows) {
      dot_panels(some, first, last);
    } else {
      dot_columns(some, first, last);
    }
  }
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strait::kernels {

HWY_EXPORT(dot_all);

void cpu::dot_product(const RowProduct& all, std::int64_t first, std::int64_t last) {
  HWY_DYNAMIC_DISPATCH(dot_all)(all, first, last);
}

}  // namespace strait::kernels
#endif

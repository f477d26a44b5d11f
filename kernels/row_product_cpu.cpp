#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_product_cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/lanes-inl.h"
#include "kernels/row_product.h"

// Sums stay in registers as long as possible: as many as the instruction set has room for.
HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3 || \
    HWY_TARGET == HWY_SCALAR
constexpr int kDotRows = 2;
constexpr int kDotOutputs = 4;
constexpr int kPanelVectors = 2;
#else
constexpr int kDotRows = 4;
constexpr int kDotOutputs = 6;
constexpr int kPanelVectors = 4;
#endif
constexpr int kPanelRows = 6;

// Rows that are computed together: their inputs stay in the cache while the matrix comes by.
constexpr std::int64_t kCachedBytes = 256 << 10;

HWY_INLINE std::int64_t rows_together(const cpu::RowProduct& all) {
  constexpr std::int64_t kMultiple = 12;  // of both kinds of tiles
  const std::int64_t bytes = kMultiple * all.width * static_cast<std::int64_t>(sizeof(float));
  return kMultiple * std::max<std::int64_t>(1, kCachedBytes / std::max<std::int64_t>(1, bytes));
}

// ---- [out, in]: a value of the product is the sum of the lanes of a vector of sums --------------

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
      all.product[(row + r) * all.outputs + output + o] = sum_of(sums[r][o]) + bias;
    }
  }
}

template <int kOutputs>
HWY_INLINE void dot_rows(const cpu::RowProduct& all, std::int64_t row, std::int64_t end,
                         std::int64_t output) {
  for (; row + kDotRows <= end; row += kDotRows) dot_tile<kDotRows, kOutputs>(all, row, output);
  for (; row < end; ++row) dot_tile<1, kOutputs>(all, row, output);
}

void dot_columns(const cpu::RowProduct& all, std::int64_t first, std::int64_t last) {
  const std::int64_t together = rows_together(all);
  for (std::int64_t row = 0; row < all.rows; row += together) {
    const std::int64_t end = std::min(row + together, all.rows);
    std::int64_t output = first;
    for (; output + kDotOutputs <= last; output += kDotOutputs) {
      dot_rows<kDotOutputs>(all, row, end, output);
    }
    for (; output < last; ++output) dot_rows<1>(all, row, end, output);
  }
}

// ---- [in, out]: a lane of a vector of sums is a value of the product ----------------------------

// Rows, columns and inputs that a tile adds to the product.
struct PanelPart {
  std::int64_t row = 0;
  std::int64_t output = 0;
  std::int64_t outputs = 0;  // fewer than a vector has
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

template <int kRows, int kVectors, bool kWhole>
HWY_INLINE void panel_tile(const cpu::RowProduct& all, const PanelPart& part) {
  const auto load = [&](const float* from) HWY_ATTR {
    return kWhole ? load_lanes(from) : load_upto(from, part.outputs);
  };
  const float* const inputs = all.input + part.row * all.width;
  float* const product = all.product + part.row * all.outputs + part.output;
  Vector sums[kRows][kVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = load(product + r * all.outputs + v * lane_count());
    }
  }
  for (std::int64_t k = part.begin; k < part.end; ++k) {
    const float* const weights = all.matrix + k * all.outputs + part.output;
    Vector weight[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) weight[v] = load(weights + v * lane_count());
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const Vector value = hn::Set(Lanes(), inputs[r * all.width + k]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(value, weight[v], sums[r][v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* const to = product + r * all.outputs + v * lane_count();
      if (kWhole) {
        store_lanes(sums[r][v], to);
      } else {
        store_upto(sums[r][v], to, part.outputs);
      }
    }
  }
}

template <int kVectors, bool kWhole>
HWY_INLINE void panel_rows(const cpu::RowProduct& all, PanelPart part, std::int64_t end) {
  for (; part.row + kPanelRows <= end; part.row += kPanelRows) {
    panel_tile<kPanelRows, kVectors, kWhole>(all, part);
  }
  for (; part.row + 2 <= end; part.row += 2) panel_tile<2, kVectors, kWhole>(all, part);
  if (part.row < end) panel_tile<1, kVectors, kWhole>(all, part);
}

// Columns of these rows: by parts of the inputs, so that memory is read in long stretches and the
// sums stay in the nearest cache.
HWY_INLINE void panel_part(const cpu::RowProduct& all, PanelPart part, std::int64_t end,
                           std::int64_t last) {
  const std::int64_t first = part.output;
  const std::int64_t inputs = end - part.row < 16 ? 16 : 64;
  for (; part.begin < all.width; part.begin += inputs) {
    part.end = std::min(part.begin + inputs, all.width);
    part.output = first;
    const std::int64_t wide = kPanelVectors * lane_count();
    for (; part.output + wide <= last; part.output += wide) {
      panel_rows<kPanelVectors, true>(all, part, end);
    }
    for (; part.output < last; part.output += lane_count()) {
      part.outputs = std::min(lane_count(), last - part.output);
      panel_rows<1, false>(all, part, end);
    }
  }
}

void panel_columns(const cpu::RowProduct& all, std::int64_t first, std::int64_t last) {
  constexpr std::int64_t kColumns = 512;
  const std::int64_t together = rows_together(all);
  for (std::int64_t row = 0; row < all.rows; ++row) {
    float* const product = all.product + row * all.outputs;
    if (all.bias == nullptr) {
      std::fill(product + first, product + last, 0.0F);
    } else {
      std::copy(all.bias + first, all.bias + last, product + first);
    }
  }
  for (std::int64_t row = 0; row < all.rows; row += together) {
    const std::int64_t end = std::min(row + together, all.rows);
    for (std::int64_t output = first; output < last; output += kColumns) {
      panel_part(all, {row, output}, end, std::min(output + kColumns, last));
    }
  }
}

void row_product_columns(const cpu::RowProduct& all, std::int64_t first, std::int64_t last) {
  if (all.input_first) {
    panel_columns(all, first, last);
  } else {
    dot_columns(all, first, last);
  }
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strait::kernels {

HWY_EXPORT(row_product_columns);

void cpu::row_product(const RowProduct& all, std::int64_t first, std::int64_t last) {
  HWY_DYNAMIC_DISPATCH(row_product_columns)(all, first, last);
}

}  // namespace strait::kernels
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_product_cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <vector>

#include "kernels/row_product.h"
#include "kernels/tiles-inl.h"

// A lane of a vector of sums is a value of the product.
HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

// Inputs and columns of the matrix.
struct Part {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
};

template <int kVectors, Columns kColumns>
HWY_INLINE void part_tiles(const cpu::RowProduct& all, const Part& part, Tile tile,
                           std::int64_t output, ReadAhead& ahead) {
  const float* const inputs = all.input + part.begin;
  for_tiles(all.rows, [&](auto rows, std::int64_t row) HWY_ATTR {
    ahead.read_part();
    tile.inputs = inputs + row * all.width;
    tile.sums = all.product + row * all.outputs + output;
    add_tile<rows, kVectors, Begin::sums, kColumns>(tile);
  });
}

// `weights`: of the part, as they lie or copied. `next`: what is copied after it.
HWY_INLINE void add_part(const cpu::RowProduct& all, const Part& part, const float* weights,
                         std::int64_t stride, const Block& next) {
  const std::int64_t panels = (part.last - part.first) / panel_width() + 1;
  ReadAhead ahead(next, panels * tiles_of(all.rows));
  Tile tile;
  tile.input_stride = all.width;
  tile.weight_stride = stride;
  tile.sum_stride = all.outputs;
  tile.steps = part.end - part.begin;
  std::int64_t output = part.first;
  for (; output + panel_width() <= part.last; output += panel_width()) {
    tile.weights = weights + output - part.first;
    part_tiles<kPanelVectors, Columns::whole_vectors>(all, part, tile, output, ahead);
  }
  for (; output < part.last; output += lane_count()) {
    tile.weights = weights + output - part.first;
    tile.columns = std::min(lane_count(), part.last - output);
    part_tiles<1, Columns::few>(all, part, tile, output, ahead);
  }
}

HWY_INLINE void add_copied_part(const cpu::RowProduct& all, const Part& part,
                                std::int64_t columns) {
  thread_local std::vector<float> memory;
  // Rows whose distance is a power of two would lie in the same few lines of a cache.
  const std::int64_t stride = columns + kMostLanes;
  float* const copied = room_for(memory, (part.end - part.begin) * stride);
  for (std::int64_t k = part.begin; k < part.end; ++k) {
    const float* const from = all.matrix + k * all.outputs;
    std::copy(from + part.first, from + part.last, copied + (k - part.begin) * stride);
  }
  const std::int64_t left = std::min(all.width - part.end, part.end - part.begin);
  const Block next{all.matrix + part.end * all.outputs + part.first, left, part.last - part.first,
                   all.outputs};
  add_part(all, part, copied, stride, next);
}

// By parts of the inputs, so that memory is read in long stretches and the sums stay in a near
// cache.
void part_columns(const cpu::RowProduct& all, std::int64_t first, std::int64_t last) {
  const bool many = all.rows >= kManyRows;
  const std::int64_t columns = many ? 256 : 512;
  const std::int64_t inputs = many ? 128 : 16;
  for (std::int64_t row = 0; row < all.rows; ++row) {
    float* const product = all.product + row * all.outputs;
    if (all.bias == nullptr) {
      std::fill(product + first, product + last, 0.0F);
    } else {
      std::copy(all.bias + first, all.bias + last, product + first);
    }
  }
  for (Part part{.first = first}; part.first < last; part.first = part.last) {
    part.last = std::min(part.first + columns, last);
    for (part.begin = 0; part.begin < all.width; part.begin = part.end) {
      part.end = std::min(part.begin + inputs, all.width);
      if (many) {
        add_copied_part(all, part, columns);
      } else {
        add_part(all, part, all.matrix + part.begin * all.outputs + part.first, all.outputs, {});
      }
    }
  }
}

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strait::kernels {

HWY_EXPORT(part_columns);

void cpu::row_product(const RowProduct& all, std::int64_t first, std::int64_t last) {
  if (!all.input_first) return dot_product(all, first, last);
  HWY_DYNAMIC_DISPATCH(part_columns)(all, first, last);
}

}  // namespace strait::kernels
#endif

#include "kernels/row_product.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "kernels/parallel.h"

namespace strait::kernels {
namespace {

constexpr std::int64_t kRowTile = 8;
// Columns that one thread computes, at least: a multiple of every vector, and a page of a matrix
// that has its inputs first.
constexpr std::int64_t kProductColumns = 64;
// Fewer products are not worth waking a thread.
constexpr std::int64_t kLeastProducts = 1 << 17;

bool kernel_takes(const at::Tensor& input, const at::Tensor& matrix, const at::Tensor& bias) {
  const auto fits = [](const at::Tensor& one) {
    return one.is_cpu() && one.scalar_type() == at::kFloat;
  };
  return fits(input) && fits(matrix) && (!bias.defined() || fits(bias));
}

at::Tensor padded_product(const at::Tensor& input, const at::Tensor& matrix, const at::Tensor& bias,
                          bool input_first) {
  const std::int64_t missing = (kRowTile - input.size(0) % kRowTile) % kRowTile;
  const at::Tensor rows = missing == 0 ? input : at::constant_pad_nd(input, {0, 0, 0, missing});
  const at::Tensor stored = matrix.to(input.scalar_type());
  const at::Tensor factor = input_first ? stored : stored.t();
  const at::Tensor product = bias.defined() ? at::addmm(bias, rows, factor) : at::mm(rows, factor);
  return product.narrow(0, 0, input.size(0));
}

}  // namespace

at::Tensor row_product(const at::Tensor& input, const at::Tensor& matrix, const at::Tensor& bias,
                       bool input_first) {
  if (!kernel_takes(input, matrix, bias)) return padded_product(input, matrix, bias, input_first);
  const at::Tensor rows = input.contiguous();
  const at::Tensor stored = matrix.contiguous();
  const at::Tensor added = bias.defined() ? bias.contiguous() : bias;
  cpu::RowProduct all;
  all.input = rows.const_data_ptr<float>();
  all.matrix = stored.const_data_ptr<float>();
  if (added.defined()) all.bias = added.const_data_ptr<float>();
  all.rows = rows.size(0);
  all.width = rows.size(1);
  all.outputs = stored.size(input_first ? 1 : 0);
  all.input_first = input_first;
  at::Tensor product = at::empty({all.rows, all.outputs}, rows.options());
  all.product = product.mutable_data_ptr<float>();
  const std::int64_t parts = (all.outputs + kProductColumns - 1) / kProductColumns;
  const std::int64_t products = std::max<std::int64_t>(1, all.rows * all.width * kProductColumns);
  const std::int64_t grain = std::max<std::int64_t>(1, kLeastProducts / products);
  parallel_for(parts, grain, [&](std::int64_t first, std::int64_t last) {
    cpu::row_product(all, first * kProductColumns, std::min(last * kProductColumns, all.outputs));
  });
  return product;
}

at::Tensor row_products(const at::Tensor& input, const at::Tensor& matrices, bool input_first) {
  at::Tensor products = at::empty(
      {input.size(0), input.size(1), matrices.size(input_first ? 2 : 1)}, input.options());
  const at::Tensor stored = matrices.detach();
  const auto compute = [&](std::int64_t first, std::int64_t last) {
    const at::NoGradGuard no_grad;  // threads have their own
    for (std::int64_t head = first; head < last; ++head) {
      products.select(1, head).copy_(
          row_product(input.select(1, head), stored[head], {}, input_first));
    }
  };
  if (input.is_cpu()) {
    parallel_for(input.size(1), 1, compute);
  } else {
    compute(0, input.size(1));
  }
  return products;
}

at::Tensor latent_attention(const at::Tensor& query, const at::Tensor& latents, std::int64_t rank,
                            double scale) {
  const at::Tensor scores = row_product(query, latents, {}, /*input_first=*/false).mul_(scale);
  const at::Tensor shares = scores.softmax(1, at::kFloat).to(query.scalar_type());
  return row_product(shares, latents, {}, /*input_first=*/true).narrow(1, 0, rank);
}

}  // namespace strait::kernels

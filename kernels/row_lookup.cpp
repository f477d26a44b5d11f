#include "kernels/row_lookup.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "kernels/weight_gradient_queue.h"

namespace strait::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RowLookup : public torch::autograd::Function<RowLookup> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& table,
                            const at::Tensor& indices, std::int64_t padding) {
    context->save_for_backward({table, indices});
    context->saved_data["padding"] = padding;
    return at::embedding(table, indices);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& table = saved[0];
    if (!table.requires_grad()) return {at::Tensor(), at::Tensor(), at::Tensor()};
    const std::int64_t padding = context->saved_data["padding"].toInt();
    at::Tensor& gradient = leaf_gradient(table);
    if (table.is_cpu()) {
      add_sums(gradient, saved[1], gradients[0], padding);
    } else {
      add_in_order(gradient, saved[1], gradients[0], padding);
    }
    announce_leaf_gradient(table);
    return {at::Tensor(), at::Tensor(), at::Tensor()};
  }

 private:
  static void add_sums(const at::Tensor& gradient, const at::Tensor& indices,
                       const at::Tensor& slope, std::int64_t padding) {
    // Rows that were looked up more than once are summed first, in the order of their indices. So
    // what is added to the gradient does not depend on its previous value.
    const auto [rows, places, counts] =
        at::_unique2(indices, /*sorted=*/true, /*return_inverse=*/true, /*return_counts=*/false);
    // In the gradient's type: in bfloat16 the sum of a frequent token would soon stop growing.
    at::Tensor sums =
        at::embedding_dense_backward(slope.to(gradient.scalar_type()), places, rows.numel(),
                                     /*padding_idx=*/-1,
                                     /*scale_grad_by_freq=*/false);
    if (padding >= 0) sums.masked_fill_(rows.eq(padding).unsqueeze(1), 0);
    gradient.index_add_(0, rows, sums);
  }

  // Only the device knows the number of rows. Nothing may depend on it, or the host would wait.
  // Sorts the indices, so that every row's sum has one order.
  static void add_in_order(const at::Tensor& gradient, const at::Tensor& indices,
                           const at::Tensor& slope, std::int64_t padding) {
    at::Tensor slopes = slope.to(gradient.scalar_type());
    if (padding >= 0) slopes = slopes.masked_fill(indices.eq(padding).unsqueeze(-1), 0);
    c10::List<std::optional<at::Tensor>> rows;
    rows.push_back(indices);
    at::Tensor(gradient).index_put_(rows, slopes, /*accumulate=*/true);
  }
};

}  // namespace

at::Tensor look_up_rows(const at::Tensor& table, const at::Tensor& indices, std::int64_t padding) {
  TORCH_INTERNAL_ASSERT(table.is_leaf() && table.dim() == 2, "a lookup in a table ", table.sizes());
  return RowLookup::apply(table, indices, padding);
}

}  // namespace strait::kernels

#include "models/embedding.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "kernels/kernel_tensors.h"
#include "kernels/row_lookup.h"

namespace strait::models {

Embedding::Embedding(ParameterMaker& maker, const std::string& name, std::int64_t rows,
                     std::int64_t width, std::string what, std::int64_t padding)
    : weight_(maker.make(name + ".weight", {rows, width})),
      what_(std::move(what)),
      padding_row_(std::make_shared<std::int64_t>(padding)) {}

at::Tensor Embedding::forward(const at::Tensor& indices) const {
  TORCH_INTERNAL_ASSERT(indices.is_cpu(), what_, "s on ", indices.device());
  if (indices.numel() > 0) {
    const auto [lowest, highest] = at::aminmax(indices);
    const auto low = lowest.item<std::int64_t>();
    const auto high = highest.item<std::int64_t>();
    if (low < 0 || high >= weight_.size(0)) {
      throw std::out_of_range(
          fmt::format("there is a {0} {1} in the data, but the model has {0}s "
                      "0 to {2}: prepare the data for this model",
                      what_, low < 0 ? low : high, weight_.size(0) - 1));
    }
  }
  return kernels::look_up_rows(weight_, kernels::on_device(indices, weight_.device()),
                               *padding_row_);
}

}  // namespace strait::models

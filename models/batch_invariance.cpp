#include "models/batch_invariance.h"

#include <ATen/ATen.h>

namespace strait::models {

at::Tensor by_token(const Pass& pass, const std::vector<at::Tensor>& values,
                    const TokenFunction& compute) {
  // A GPU computes every value by one formula.
  if (pass.cache == nullptr || !values.front().is_cpu()) return compute(values);
  std::vector<std::vector<at::Tensor>> tokens;
  tokens.reserve(values.size());
  for (const at::Tensor& one : values) tokens.push_back(one.flatten(0, -2).split(1));
  std::vector<at::Tensor> results;
  results.reserve(tokens.front().size());
  std::vector<at::Tensor> token(values.size());
  for (std::size_t i = 0; i < tokens.front().size(); ++i) {
    for (std::size_t j = 0; j < values.size(); ++j)
      token[j] = tokens[j][i].clone(at::MemoryFormat::Contiguous);
    results.push_back(compute(token));
  }
  std::vector<std::int64_t> sizes = values.front().sizes().vec();
  sizes.back() = results.front().size(-1);
  return at::cat(results).view(sizes);
}

}  // namespace strait::models

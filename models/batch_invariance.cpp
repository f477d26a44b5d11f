#include "models/batch_invariance.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "kernels/parallel.h"

namespace strait::models {
namespace {

// A multiple of what libtorch's loops compute at once, also of the halves of a token.
constexpr std::int64_t kWholeVectors = 128;
// Below the number from which libtorch would share the values of a part among threads itself, and
// cut them within a vector.
constexpr std::int64_t kValuesOfPart = 1 << 14;

}  // namespace

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

at::Tensor by_value(const Pass& pass, const std::vector<at::Tensor>& values,
                    const TokenFunction& compute) {
  if (pass.cache == nullptr || !values.front().is_cpu()) return compute(values);
  const std::int64_t width = values.front().size(-1);
  const bool whole = std::ranges::all_of(values, [&](const at::Tensor& one) {
    return one.size(-1) == width && width % kWholeVectors == 0;
  });
  if (!whole || width > kValuesOfPart) return by_token(pass, values, compute);
  std::vector<at::Tensor> tokens;
  tokens.reserve(values.size());
  for (const at::Tensor& one : values) tokens.push_back(one.flatten(0, -2).contiguous());
  const std::int64_t grain = kValuesOfPart / width;
  const std::int64_t count = tokens.front().size(0);
  const std::int64_t parts = std::max<std::int64_t>(1, (count + grain - 1) / grain);
  std::vector<at::Tensor> results(static_cast<std::size_t>(parts));
  kernels::parallel_for(parts, 1, [&](std::int64_t first, std::int64_t last) {
    const at::NoGradGuard no_grad;  // threads have their own
    for (std::int64_t part = first; part < last; ++part) {
      std::vector<at::Tensor> own;
      own.reserve(tokens.size());
      for (const at::Tensor& all : tokens) {
        own.push_back(all.narrow(0, part * grain, std::min(grain, count - part * grain)));
      }
      results[static_cast<std::size_t>(part)] = compute(own);
    }
  });
  std::vector<std::int64_t> sizes = values.front().sizes().vec();
  sizes.back() = results.front().size(-1);
  return at::cat(results).view(sizes);
}

}  // namespace strait::models

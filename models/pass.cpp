#include "models/pass.h"

#include <ATen/ATen.h>

#include <numeric>

#include "models/key_value_cache.h"

namespace strait::models {

kernels::DropoutKey Pass::dropout_key(int layer, int site) const {
  return {seed, step, micro_batch, static_cast<std::uint64_t>(layer),
          static_cast<std::uint64_t>(site)};
}

Pass make_pass(const std::vector<std::vector<std::int64_t>>& documents, std::int64_t length,
               const std::vector<std::int64_t>& past) {
  const auto rows = static_cast<std::int64_t>(documents.size());
  std::vector<std::int64_t> positions(static_cast<std::size_t>(rows * length), 0);
  Pass pass;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t begin = 0;
    std::int64_t before = past.empty() ? 0 : past[static_cast<std::size_t>(row)];
    for (const std::int64_t tokens : documents[static_cast<std::size_t>(row)]) {
      TORCH_INTERNAL_ASSERT(begin + tokens <= length, "documents of ", begin + tokens,
                            " tokens in a row of ", length);
      if (tokens > 0) pass.documents.push_back({row, begin, tokens, before});
      const auto first = positions.begin() + row * length + begin;
      std::iota(first, first + tokens, before);
      begin += tokens;
      before = 0;
    }
  }
  pass.positions = at::tensor(positions, at::kLong).view({rows, length});
  pass.rotary = std::make_shared<RotaryTables>();
  return pass;
}

Pass make_pass(KeyValueCache& cache, std::int64_t rows, std::int64_t count) {
  Pass pass;
  std::vector<at::Tensor> positions;
  for (const KeyValueCache::Extension& extension : cache.extensions()) {
    const std::int64_t past = extension.sequence->length();
    positions.push_back(at::arange(past, past + extension.count, at::kLong));
    extension.sequence->add_length(extension.count);
  }
  pass.positions = at::cat(positions).view({rows, count});
  pass.cache = &cache;
  pass.rotary = std::make_shared<RotaryTables>();
  return pass;
}

}  // namespace strait::models

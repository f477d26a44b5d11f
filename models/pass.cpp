#include "models/pass.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "models/key_value_cache.h"

namespace strait::models {
namespace {

struct RowNumbers {
  std::vector<std::int64_t> positions;
  std::vector<std::int64_t> documents;  // number of the document of each token
};

// Every padding token counts as a document of its own: it attends to itself, and no other token
// attends to it.
RowNumbers number_row(const std::vector<std::int64_t>& lengths, std::int64_t length) {
  RowNumbers row;
  std::int64_t document = 0;
  for (const std::int64_t tokens : lengths) {
    for (std::int64_t position = 0; position < tokens; ++position) {
      row.positions.push_back(position);
      row.documents.push_back(document);
    }
    ++document;
  }
  TORCH_INTERNAL_ASSERT(std::cmp_less_equal(row.positions.size(), length), "documents of ",
                        row.positions.size(), " tokens in a row of ", length);
  while (std::cmp_less(row.positions.size(), length)) {
    row.positions.push_back(0);
    row.documents.push_back(document++);
  }
  return row;
}

}  // namespace

kernels::DropoutKey Pass::dropout_key(int layer, int site) const {
  return {seed, step, micro_batch, static_cast<std::uint64_t>(layer),
          static_cast<std::uint64_t>(site)};
}

Pass make_pass(const std::vector<std::vector<std::int64_t>>& documents, std::int64_t length,
               at::Device device) {
  std::vector<std::int64_t> positions;
  std::vector<std::int64_t> numbers;
  for (const std::vector<std::int64_t>& lengths : documents) {
    const RowNumbers row = number_row(lengths, length);
    positions.insert(positions.end(), row.positions.begin(), row.positions.end());
    numbers.insert(numbers.end(), row.documents.begin(), row.documents.end());
  }
  const auto rows = static_cast<std::int64_t>(documents.size());
  Pass pass;
  pass.positions = at::tensor(positions, at::kLong).view({rows, length}).to(device);
  const bool packed = std::any_of(documents.begin(), documents.end(),
                                  [](const auto& lengths) { return lengths.size() > 1; });
  if (packed) {
    const at::Tensor number = at::tensor(numbers, at::kLong).view({rows, length}).to(device);
    const at::Tensor same = number.unsqueeze(2).eq(number.unsqueeze(1));
    pass.attention_mask = same.tril().unsqueeze(1);
  }
  return pass;
}

Pass make_pass(KeyValueCache& cache, std::int64_t rows, std::int64_t count, at::Device device) {
  Pass pass;
  const std::int64_t past = cache.length();
  const auto options = at::TensorOptions(at::kLong).device(device);
  pass.positions = at::arange(past, past + count, options).unsqueeze(0).expand({rows, count});
  pass.cache = &cache;
  return pass;
}

}  // namespace strait::models

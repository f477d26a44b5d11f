#include "stages/looked_up_rows.h"

namespace strait::stages {

LookedUpRows looked_up_rows(const BatchSource& source, const Phase& phase, int micro_batches) {
  const auto tokens = static_cast<std::size_t>(source.file(phase).largest_token()) + 1;
  // The first and last micro-batch that use each token; -1: none.
  std::vector<int> first(tokens, -1);
  std::vector<int> last(tokens, -1);
  for (int m = 0; m < micro_batches; ++m) {
    for (const std::int64_t token : source.padded_tokens(phase, MicroBatch{m})) {
      const auto at = static_cast<std::size_t>(token);
      if (first[at] < 0) first[at] = m;
      last[at] = m;
    }
  }
  LookedUpRows rows;
  rows.first_use.resize(static_cast<std::size_t>(micro_batches));
  rows.last_use.resize(static_cast<std::size_t>(micro_batches));
  for (std::size_t token = 0; token < tokens; ++token) {
    if (first[token] < 0) continue;
    const auto index = static_cast<std::int64_t>(rows.tokens.size());
    rows.tokens.push_back(static_cast<std::int64_t>(token));
    rows.first_use[static_cast<std::size_t>(first[token])].push_back(index);
    rows.last_use[static_cast<std::size_t>(last[token])].push_back(index);
  }
  return rows;
}

}  // namespace strait::stages

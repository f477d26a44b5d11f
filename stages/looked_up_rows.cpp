#include "stages/looked_up_rows.h"

#include <map>

namespace strait::stages {

LookedUpRows looked_up_rows(const BatchSource& source, const Phase& phase, int micro_batches) {
  struct Use {
    std::size_t first;
    std::size_t last;
  };
  std::map<std::int64_t, Use> uses;
  for (int m = 0; m < micro_batches; ++m) {
    const auto micro_batch = static_cast<std::size_t>(m);
    for (const std::int64_t token : source.padded_tokens(phase, MicroBatch{m})) {
      uses.try_emplace(token, Use{micro_batch, micro_batch}).first->second.last = micro_batch;
    }
  }
  LookedUpRows rows;
  rows.first_use.resize(static_cast<std::size_t>(micro_batches));
  rows.last_use.resize(static_cast<std::size_t>(micro_batches));
  rows.tokens.reserve(uses.size());
  for (const auto& [token, use] : uses) {
    const auto index = static_cast<std::int64_t>(rows.tokens.size());
    rows.tokens.push_back(token);
    rows.first_use[use.first].push_back(index);
    rows.last_use[use.last].push_back(index);
  }
  return rows;
}

}  // namespace strait::stages

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

namespace strait::models {

// The tokens of every expert, and the balance of the routers, over the passes that it is given to.
struct ExpertLoad {
  std::map<int, std::vector<std::int64_t>> tokens;  // by layer, by expert
  // float32 on the layers' device: the balance loss (ExpertMlp) of these layers, each pass times
  // its Pass::balance_share. Undefined: none.
  at::Tensor balance;

  void add(int layer, const std::vector<std::int64_t>& counts, const at::Tensor& loss) {
    std::vector<std::int64_t>& sums = tokens[layer];
    sums.resize(counts.size());
    for (std::size_t i = 0; i < counts.size(); ++i) sums[i] += counts[i];
    balance = balance.defined() ? balance.add(loss) : loss;
  }
};

}  // namespace strait::models

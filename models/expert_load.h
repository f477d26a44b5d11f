#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace strait::models {

// The tokens of every expert, and the balance of the routers, over the passes that it is given to.
struct ExpertLoad {
  std::map<int, std::vector<std::int64_t>> tokens;  // by layer, by expert
  // float32 on the layers' device: the balance loss (ExpertMlp) of these layers, of each
  // micro-batch times its Pass::balance_share. Undefined: none.
  at::Tensor balance;

  // The part of a micro-batch that has passed a layer, in slices or whole.
  struct Part {
    std::vector<std::int64_t> counts;  // rows by expert
    at::Tensor shares;                 // sums of their probabilities, float32
    std::int64_t tokens = 0;
    at::Tensor loss;
  };

  // `loss` of a part. The product of counts and probabilities is of whole micro-batches, so a slice
  // that `continues` the one before replaces the loss of the part so far.
  void add(int layer, Part part, bool continues,
           const std::function<at::Tensor(const Part& part)>& loss) {
    std::vector<std::int64_t>& sums = tokens[layer];
    sums.resize(part.counts.size());
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += part.counts[i];
    Part& so_far = parts_[layer];
    if (continues && so_far.loss.defined()) {
      for (std::size_t i = 0; i < sums.size(); ++i) part.counts[i] += so_far.counts[i];
      part.shares = part.shares.add(so_far.shares);
      part.tokens += so_far.tokens;
      balance = balance.sub(so_far.loss);
    }
    part.loss = loss(part);
    balance = balance.defined() ? balance.add(part.loss) : part.loss;
    so_far = std::move(part);
  }

 private:
  std::map<int, Part> parts_;  // by layer, of the latest micro-batch
};

}  // namespace strait::models

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/mlp.h"
#include "models/parameter.h"
#include "models/pass.h"

namespace strait::models {

// The experts of a block, as a family's config.json describes them.
struct ExpertOptions {
  std::int64_t count = 0;         // 0: every block has one MLP
  std::int64_t per_token = 0;     // experts that a token goes to
  std::int64_t inner = 0;         // of an expert
  std::int64_t shared_inner = 0;  // of the expert that every token goes to; 0: there is none
  bool normalise = false;         // the weights of a token's experts add up to 1
  bool router_bias = false;
  kernels::ClampedGate clamped;  // of the experts' MLPs
  // Files have one tensor for all experts of a block, [experts, in, out], and one of their biases.
  // PEFT then has no adapters for them.
  bool joined = false;
  double balance = 0;       // coefficient of the balance loss; 0: there is none
  std::int64_t blocks = 1;  // sparse blocks of the model, which the balance loss is the mean over
};

// An MLP that every token goes to in addition to its experts. The result is multiplied by the
// sigmoid of the gate.
struct SharedExpert {
  Mlp mlp;
  Linear gate;
};

// A sparse MLP: a router chooses the experts of each token by the softmax of its logits, in
// float32, and the token's result is the sum of theirs, weighted by their probabilities. Every
// expert computes its rows only, sorted by expert (kernels/expert_rows.h); none is dropped. Padding
// goes to no expert, and its result is zero.
//
// The balance loss of a block is count · Σ f·p over the experts, of f, the rows of an expert for
// each token of the micro-batch, and p, the mean of its probability. So the gradient of a block
// needs no other stage, and does not depend on the partition.
class ExpertMlp {
 public:
  // `make_expert` makes the MLP of an expert by its number.
  ExpertMlp(ParameterMaker& maker, int layer, const std::string& router, std::int64_t hidden,
            const ExpertOptions& options, const std::function<Mlp(std::int64_t)>& make_expert);

  void share(std::optional<SharedExpert> shared) { shared_ = std::move(shared); }

  at::Tensor forward(const at::Tensor& input, const Pass& pass) const;

 private:
  at::Tensor compute(const at::Tensor& tokens, const Pass& pass) const;
  // Counts the rows, and adds the gradient of the balance loss to the probabilities.
  at::Tensor balance(const at::Tensor& probabilities, const std::vector<std::int64_t>& counts,
                     const Pass& pass) const;

  int layer_;
  ExpertOptions options_;
  at::Tensor router_;
  at::Tensor router_bias_;
  std::vector<Mlp> experts_;
  std::optional<SharedExpert> shared_;
};

}  // namespace strait::models

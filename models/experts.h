#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/expert_rows.h"
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
  double scale = 1;               // of a token's weights, after that
  // The router's scores: the softmax of its logits, or the sigmoid of each.
  bool sigmoid = false;
  bool router_bias = false;
  bool choice_bias = false;  // a tensor without gradient that is added to scores only to choose
  bool wide_router = false;  // its product is in float32
  // A token's experts are in its best groups, by the sum of the two best scores of each. 1: no
  // groups.
  std::int64_t groups = 1;
  std::int64_t groups_per_token = 1;
  kernels::ClampedGate clamped;  // of the experts' MLPs
  // Files have one tensor for all experts of a block, with gate and up in one, and one of their
  // biases. The adapters that PEFT has of it are Lora::parameters.
  bool joined = false;
  bool input_first = false;  // it is [experts, in, out]
  double balance = 0;        // coefficient of the balance loss; 0: there is none
  std::int64_t blocks = 1;   // sparse blocks of the model, which the balance loss is the mean over
};

// An MLP that every token goes to in addition to its experts. The result is multiplied by the
// sigmoid of the gate.
struct SharedExpert {
  Mlp mlp;
  std::optional<Linear> gate;
};

// The name of ExpertOptions::choice_bias after that of the router. Values are float32 whatever the
// type of the others, because small differences between large ones decide.
inline constexpr const char* kChoiceBias = ".e_score_correction_bias";

// A sparse MLP: a router chooses the experts of each token by scores of its logits, in float32, and
// the token's result is the sum of theirs, weighted by their scores. Every
// expert computes its rows only, sorted by expert (kernels/expert_rows.h); none is dropped. Padding
// goes to no expert, and its result is zero.
//
// The balance loss of a block is count · Σ f·p over the experts, of f, the rows of an expert for
// each token of the micro-batch, and p, the mean of its share of a token's scores. So the gradient
// of a block needs no other stage, and does not depend on the partition.
class ExpertMlp {
 public:
  // `make_expert` makes the MLP of an expert by its number.
  ExpertMlp(ParameterMaker& maker, int layer, const std::string& router, std::int64_t hidden,
            const ExpertOptions& options, const std::function<Mlp(std::int64_t)>& make_expert);

  void share(std::optional<SharedExpert> shared) { shared_ = std::move(shared); }

  at::Tensor forward(const at::Tensor& input, const Pass& pass) const;

 private:
  at::Tensor compute(const at::Tensor& tokens, const Pass& pass) const;
  at::Tensor experts_of(const at::Tensor& tokens, const at::Tensor& weights,
                        const kernels::ExpertRows& rows, const Pass& pass) const;
  at::Tensor scores(const at::Tensor& tokens, const Pass& pass) const;  // [tokens, experts]
  at::Tensor choose(const at::Tensor& scores) const;                    // [tokens, experts of each]
  // Counts the rows, and adds the gradient of the balance loss to the scores.
  at::Tensor balance(const at::Tensor& scores, const std::vector<std::int64_t>& counts,
                     const Pass& pass) const;

  int layer_;
  ExpertOptions options_;
  at::Tensor router_;
  at::Tensor router_bias_;
  at::Tensor choice_bias_;
  std::vector<Mlp> experts_;
  std::vector<kernels::ExpertMatrices> matrices_;  // of all experts; empty: not of that kind
  std::optional<SharedExpert> shared_;
};

}  // namespace strait::models

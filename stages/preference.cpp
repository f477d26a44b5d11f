#include "stages/preference.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

namespace strait::stages {
namespace {

// An answer that is certain has infinite odds, and no weight would be updated again.
constexpr double kMostMean = -1e-7;

at::Tensor chosen(const at::Tensor& answers) { return answers.view({-1, 2}).select(1, 0); }
at::Tensor rejected(const at::Tensor& answers) { return answers.view({-1, 2}).select(1, 1); }
at::Tensor difference(const at::Tensor& answers) { return chosen(answers) - rejected(answers); }

at::Tensor odds_loss(const at::Tensor& means, double beta) {
  const at::Tensor log_rest = at::log1p(-means.clamp_max(kMostMean).exp());
  return -chosen(means) - beta * at::log_sigmoid(difference(means) - difference(log_rest));
}

// How far the reward of each rated answer is on its side of the KL term.
at::Tensor rated_margins(const at::Tensor& ratios, const at::Tensor& undesirable, double beta) {
  const at::Tensor divergence = rejected(ratios).detach().mean().clamp_min(0);
  return beta * (1 - 2 * chosen(undesirable)) * (chosen(ratios) - divergence);
}

}  // namespace

PreferenceResult preference_loss(const PreferenceOptions& options, const at::Tensor& sums,
                                 const at::Tensor& lengths, const at::Tensor& reference,
                                 const at::Tensor& undesirable) {
  const at::AutoGradMode with_grad(true);
  const at::Tensor leaf = sums.detach().requires_grad_();
  const at::Tensor rewards = has_reference(options.loss) ? leaf - reference : leaf / lengths;
  const at::Tensor margins = options.loss == PreferenceLoss::kto
                                 ? rated_margins(rewards, undesirable, options.beta)
                                 : options.beta * difference(rewards);
  at::Tensor losses;
  switch (options.loss) {
    case PreferenceLoss::orpo:
      losses = odds_loss(rewards, options.beta);
      break;
    case PreferenceLoss::simpo:
      losses = -at::log_sigmoid(margins - options.margin);
      break;
    case PreferenceLoss::dpo:
      losses = -at::log_sigmoid(margins);
      break;
    case PreferenceLoss::kto: {
      const at::Tensor bad = chosen(undesirable);
      losses = (options.desirable_weight * (1 - bad) + options.undesirable_weight * bad) *
               (1 - margins.sigmoid());
      break;
    }
    case PreferenceLoss::none:
      TORCH_INTERNAL_ASSERT(false, "pairs of answers without a loss");
  }
  const at::Tensor loss = losses.sum();
  const at::Tensor slopes = torch::autograd::grad({loss}, {leaf}).front();
  const at::Tensor known = margins.detach();
  return {at::stack({loss.detach(), known.sum(), known.gt(0).sum().to(at::kDouble)}), -slopes};
}

}  // namespace strait::stages

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strait::stages {

// What is learnt from pairs of answers. Formulas as in the package TRL.
enum class PreferenceLoss : std::uint8_t {
  none,   // no pairs: the cross-entropy of targets
  orpo,   // of the chosen answer, and the odds of both (Hong et al. 2024)
  simpo,  // the difference of mean log-probabilities, above a margin (Meng et al. 2024)
  dpo,    // the same of sums, relative to the model without adapters (Rafailov et al. 2023)
};

struct PreferenceOptions {
  PreferenceLoss loss = PreferenceLoss::none;
  double beta = 0.1;
  double margin = 0.5;  // of simpo
};

// Results for the answers of a micro-batch, in which each chosen answer is before its rejected one.
// All are float64.
struct PreferenceResult {
  at::Tensor sums;     // [3]: of losses, of margins, and of pairs whose margin is above zero
  at::Tensor weights;  // [answers]: minus the derivative of the sum of losses by `sums`
};

// `sums` [answers] are the log-probabilities of answers, `lengths` [answers] their numbers of
// targets. `reference` are the sums of the model without adapters, for dpo only. A margin is the
// difference of rewards: beta times log-probability, of orpo and simpo its mean over the answer, of
// dpo relative to the reference. Pure.
PreferenceResult preference_loss(const PreferenceOptions& options, const at::Tensor& sums,
                                 const at::Tensor& lengths, const at::Tensor& reference);

}  // namespace strait::stages

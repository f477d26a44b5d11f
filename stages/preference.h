#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strait::stages {

// What is learnt from pairs of answers. Formulas as in the package TRL.
enum class PreferenceLoss : std::uint8_t {
  none,   // no pairs: the cross-entropy of targets
  orpo,   // of the chosen answer, and the odds of both (Hong et al. 2024)
  simpo,  // the difference of mean log-probabilities, above a margin (Meng et al. 2024)
  dpo,    // the same of sums, relative to a reference model (Rafailov et al. 2023)
  kto,    // of single answers that are rated, relative to it (Ethayarajh et al. 2024)
};

// Whether it compares with a reference model.
constexpr bool has_reference(PreferenceLoss loss) {
  return loss == PreferenceLoss::dpo || loss == PreferenceLoss::kto;
}

struct PreferenceOptions {
  PreferenceLoss loss = PreferenceLoss::none;
  double beta = 0.1;
  double margin = 0.5;            // of simpo
  double desirable_weight = 1;    // of kto
  double undesirable_weight = 1;  // of kto
};

// Results for the answers of a micro-batch, which come in pairs: a chosen answer before its
// rejected one; of kto an answer before one to another prompt. All are float64.
struct PreferenceResult {
  at::Tensor sums;     // [3]: of losses, of margins, and of pairs whose margin is above zero
  at::Tensor weights;  // [answers]: minus the derivative of the sum of losses by `sums`
};

// `sums` [answers] are the log-probabilities of answers, `lengths` [answers] their numbers of
// targets. `reference` are the sums of the reference model, where there is one. A margin is the
// difference of rewards: beta times log-probability, of orpo and simpo its mean over the answer, of
// dpo relative to the reference. Of kto it is the reward of an answer above beta times the KL term,
// which is the mean of the answers to other prompts and at least 0; where `undesirable` [answers]
// is 1, below it. Pure.
PreferenceResult preference_loss(const PreferenceOptions& options, const at::Tensor& sums,
                                 const at::Tensor& lengths, const at::Tensor& reference,
                                 const at::Tensor& undesirable = {});

}  // namespace strait::stages

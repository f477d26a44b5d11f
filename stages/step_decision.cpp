#include "stages/step_decision.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace strait::stages {
namespace {

void scale_norms(StepReport& report, double factor) {
  for (SquaredNorm& norm : report.squared_norms) norm.value *= factor * factor;
}

}  // namespace

StepDecision decide_step(const StepReport& report, double clip, bool stop) {
  double sum = 0;
  for (const SquaredNorm& norm : report.squared_norms) sum += norm.value;
  StepDecision decision;
  decision.step = report.step;
  decision.loss = report.loss;
  decision.target_tokens = report.target_tokens;
  decision.tokens = report.tokens;
  decision.gradient_norm = std::sqrt(sum);
  decision.skip = !std::isfinite(sum) || !std::isfinite(report.loss);
  decision.stop = stop;
  if (clip > 0 && !decision.skip) {
    decision.gradient_factor = std::min(1.0, clip / (decision.gradient_norm + 1e-6));
  }
  return decision;
}

StepDecider::StepDecider(StepConsensus consensus, double clip, const ReplicaSync& sync,
                         const BatchSource& source, std::function<Requests()> requests)
    : consensus_(std::move(consensus)),
      clip_(clip),
      sync_(sync),
      source_(source),
      requests_(std::move(requests)) {}

// Losses and gradients arrive divided by the target tokens of all configured replicas. Two things
// correct this divisor. Where every replica trains on its own gradient, that is the mean over its
// own tokens (own_factor). After an eviction, the sum is the mean over the tokens of the remaining
// members (factor).
StepDecision StepDecider::decide(StepReport report) {
  // A replica has rejoined since the last round.
  if (consensus_.epoch() < sync_.members().epoch) consensus_.rejoin(sync_.members());
  Requests requests = requests_();
  if (requests.save <= saved_for_) requests.save = 0;
  const bool training = !report.squared_norms.empty();
  const auto tokens = static_cast<double>(report.target_tokens);
  double own_factor = 1;
  if (!sync_.sums_gradients() && training) {
    const std::int64_t own = source_.target_tokens(report.step, sync_.trained_together());
    if (own > 0) own_factor = tokens / static_cast<double>(own);
    scale_norms(report, own_factor);
  }
  StepConsensus::Result result =
      consensus_.run_round({std::move(report), requests.stop, requests.save});
  saved_for_ = std::max(saved_for_, result.all.save);
  StepReport& all = result.all.report;
  double factor = 1;
  if (training && result.complete && result.members.size() < source_.replicas()) {
    all.target_tokens = source_.target_tokens(all.step, result.members);
    if (all.target_tokens > 0) factor = tokens / static_cast<double>(all.target_tokens);
    all.loss *= factor;
    if (!sync_.sums_gradients()) factor = 1;
    scale_norms(all, factor);
  }
  StepDecision decision = decide_step(all, clip_, result.all.stop);
  decision.gradient_factor *= own_factor * factor;
  decision.save = result.all.save > 0;
  decision.retry = !result.complete;
  decision.epoch = result.epoch;
  return decision;
}

}  // namespace strait::stages

#include "stages/step_decision.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace strait::stages {
namespace {

// The sign of a NaN means nothing, but would be printed.
double without_sign_of_nan(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

double clip_factor(double norm, double clip) {
  // The small term keeps a norm of zero from dividing by zero; torch's clip_grad_norm_ uses the
  // same.
  return clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1;
}

double norm_of(const StepReport& report) {
  double sum = 0;
  for (const SquaredNorm& norm : report.squared_norms) sum += norm.value;
  return std::sqrt(sum);
}

}  // namespace

StepDecision decide_step(const StepReport& report, double clip, bool stop) {
  const double norm = norm_of(report);
  StepDecision decision;
  decision.step = report.step;
  const bool has_targets = report.target_tokens > 0;
  // The mean of no values is unknown.
  decision.loss =
      has_targets ? without_sign_of_nan(report.loss) : std::numeric_limits<double>::quiet_NaN();
  decision.margin = report.margin;
  decision.accuracy = report.accuracy;
  decision.target_tokens = report.target_tokens;
  decision.tokens = report.tokens;
  decision.gradient_norm = without_sign_of_nan(norm);
  decision.skip = !has_targets || !std::isfinite(norm) || !std::isfinite(report.loss);
  decision.hold = decision.skip;
  decision.stop = stop;
  if (!decision.skip) decision.gradient_factor = clip_factor(norm, clip);
  return decision;
}

void scale_norms(StepReport& report, double factor) {
  for (SquaredNorm& norm : report.squared_norms) norm.value *= factor * factor;
}

trace::StepMetrics metrics_of(const StepDecision& decision, double learning_rate,
                              bool preferences) {
  trace::StepMetrics metrics;
  metrics.loss = decision.loss;
  if (preferences) {
    metrics.margin = decision.margin;
    metrics.accuracy = decision.accuracy;
  }
  metrics.grad_norm = decision.gradient_norm;
  metrics.learning_rate = learning_rate;
  metrics.tokens = decision.tokens;
  metrics.targets = decision.target_tokens;
  metrics.skipped = decision.skip;
  metrics.own_rows = decision.own;
  return metrics;
}

double own_divisor_factor(std::int64_t configured_tokens, std::int64_t own_tokens) {
  if (own_tokens <= 0) return 1;
  return static_cast<double>(configured_tokens) / static_cast<double>(own_tokens);
}

double correct_divisor(StepReport& report, std::int64_t configured_tokens,
                       std::int64_t member_tokens, bool sums_gradients) {
  double factor = own_divisor_factor(configured_tokens, member_tokens);
  report.target_tokens = member_tokens;
  report.loss *= factor;
  report.margin *= factor;
  report.accuracy *= factor;
  if (!sums_gradients) factor = 1;
  scale_norms(report, factor);
  return factor;
}

StepDecider::StepDecider(StepConsensus consensus, double clip, const ReplicaSync& sync,
                         const BatchSource& source, std::function<Requests()> requests)
    : consensus_(std::move(consensus)),
      clip_(clip),
      sync_(sync),
      source_(source),
      requests_(std::move(requests)) {}

StepDecision StepDecider::decide(StepReport report) {
  // A replica has rejoined since the last round.
  if (consensus_.epoch() < sync_.members().epoch) consensus_.rejoin(sync_.members());
  Requests requests = requests_();
  // A request that all replicas have agreed on must not save a second time.
  if (requests.save <= saved_for_) requests.save = 0;
  // A group has to agree on skipping, because its members hold the same weights. If members may
  // change, the consensus round of every step confirms that all have the data of a sync round.
  const bool waits = sync_.membership_changes() || sync_.trained_together().size() > 1;
  return sync_.trains_apart() && !waits ? decide_apart(std::move(report), requests)
                                        : decide_together(std::move(report), requests);
}

StepDecision StepDecider::decide_apart(StepReport report, const Requests& requests) {
  const bool training = !report.squared_norms.empty();
  StepDecision decision;
  bool skips = false;
  if (training) {
    const std::int64_t own = source_.target_tokens(report.step, sync_.trained_together());
    const double factor = own_divisor_factor(std::exchange(report.target_tokens, own), own);
    for (double* sum : {&report.loss, &report.margin, &report.accuracy}) *sum *= factor;
    scale_norms(report, factor);
    decision = decide_step(report, clip_, false);
    decision.gradient_factor *= factor;
    decision.own = true;
    // Rows without targets change no weight, and are no reason to hold back a checkpoint.
    skips = decision.skip && own > 0;
    // Nobody needs the norms of others, and adapters have thousands.
    report.squared_norms.clear();
  }
  const StepConsensus::Result result =
      consensus_.run_late_round({std::move(report), requests.stop, requests.save, skips});
  saved_for_ = std::max(saved_for_, result.all.save);
  if (!training) decision = decide_step(result.all.report, clip_, false);
  decision.stop = result.all.stop;
  decision.save = result.all.save > 0;
  decision.hold = result.all.skip;
  return decision;
}

StepDecision StepDecider::decide_together(StepReport report, const Requests& requests) {
  const bool training = !report.squared_norms.empty();
  const std::int64_t configured_tokens = report.target_tokens;
  double own_factor = 1;
  if (!sync_.sums_gradients() && training) {
    own_factor = own_divisor_factor(configured_tokens,
                                    source_.target_tokens(report.step, sync_.trained_together()));
    scale_norms(report, own_factor);
  }
  const double own_norm = norm_of(report);
  StepConsensus::Result result =
      consensus_.run_round({std::move(report), requests.stop, requests.save});
  saved_for_ = std::max(saved_for_, result.all.save);
  StepReport& all = result.all.report;
  double factor = 1;
  if (training && result.complete && result.members.size() < source_.replicas()) {
    factor =
        correct_divisor(all, configured_tokens, source_.target_tokens(all.step, result.members),
                        sync_.sums_gradients());
  }
  StepDecision decision = decide_step(all, clip_, result.all.stop);
  // As replicas do that need not wait.
  if (sync_.trains_apart() && !decision.skip) {
    decision.gradient_factor = clip_factor(own_norm, clip_);
  }
  decision.gradient_factor *= own_factor * factor;
  decision.save = result.all.save > 0;
  decision.retry = !result.complete;
  decision.epoch = result.epoch;
  return decision;
}

}  // namespace strait::stages

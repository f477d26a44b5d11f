#include "launcher/run/loss_history.h"

#include <fmt/format.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "launcher/base/run_file_names.h"
#include "launcher/base/text.h"

namespace strait::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using store::Step;

// A mean over n tokens deviates from the estimated value by 1 / sqrt(n) nats if the loss of a token
// deviates by 1. Three times that is not noise.
constexpr double kNoise = 3;
constexpr double kNotFinite = std::numeric_limits<double>::quiet_NaN();

void each_object(const fs::path& file, const std::function<void(const json&)>& use) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (object.is_object()) use(object);
  }
}

std::int64_t integer(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

bool is(const json& object, const char* key, const json& value) {
  const auto found = object.find(key);
  return found != object.end() && *found == value;
}

// A number that is not finite is written as null.
LossHistory::Loss loss_of(const json& object, const char* targets) {
  const auto loss = object.find("loss");
  const bool finite = loss != object.end() && loss->is_number();
  return {Step{integer(object, "step")}, finite ? loss->get<double>() : kNotFinite,
          integer(object, targets)};
}

}  // namespace

bool LossHistory::is_sound(const Loss& loss) const {
  const auto targets = static_cast<double>(std::max<std::int64_t>(1, loss.targets));
  const bool above = loss.value > guess_ + kNoise / std::sqrt(targets);
  return std::isfinite(loss.value) && !(first_better_ && above);
}

void LossHistory::add(const Loss& loss, Step weights) {
  latest_ = loss;
  not_finite_ = !std::isfinite(loss.value);
  // Good weights stay good: a checkpoint is never removed because of what came later.
  if (is_sound(loss)) good_ = std::max(good_.value_or(weights), weights);
}

void LossHistory::trained(const Loss& loss, bool skipped) {
  trained_ = loss.step;
  skipped_ = skipped ? skipped_ + 1 : 0;
  Loss judged = loss;
  if (skipped) judged.value = kNotFinite;
  if (!is_evaluated(loss.step)) add(judged, Step{number(loss.step) - 1});
  add_better(judged);
}

void LossHistory::evaluated(const Loss& loss) {
  evaluated_ = loss.step;
  evaluations_.push_back(loss);
  add(loss, loss.step);
  add_better(loss);
}

void LossHistory::add_better(const Loss& loss) {
  if (!(loss.value < guess_)) return;
  if (!first_better_) first_better_ = loss;
  if (!best_ || loss.value < best_->value) best_ = loss;
}

void LossHistory::go_back(Step step) {
  if (first_better_ && first_better_->step > step) first_better_.reset();
  if (best_ && best_->step > step) best_ = first_better_;
  if (good_) good_ = std::min(*good_, step);
  if (is_evaluated(step)) evaluated_ = step;
  std::erase_if(evaluations_, [&](const Loss& one) { return one.step > step; });
  trained_ = std::min(trained_, step);
  not_finite_ = is_bad(step);
  latest_.reset();
  skipped_ = 0;
}

store::BestRule LossHistory::best(std::int64_t keep) const {
  if (keep == 0) return {};
  std::vector<Loss> losses = evaluations_;
  std::erase_if(losses, [](const Loss& one) { return !std::isfinite(one.value); });
  std::ranges::stable_sort(losses, {}, &Loss::value);
  store::BestRule rule{keep, {}};
  rule.order.reserve(losses.size());
  for (const Loss& one : losses) rule.order.push_back(one.step);
  return rule;
}

std::optional<double> LossHistory::evaluation(Step step) const {
  const auto found = std::ranges::find(evaluations_, step, &Loss::step);
  return found == evaluations_.end() ? std::nullopt : std::optional(found->value);
}

trace::EarlyStop LossHistory::early_stop(const trace::EarlyStop::Rule& rule) const {
  trace::EarlyStop stop(rule);
  for (const Loss& one : evaluations_) stop.evaluated(one.value);
  return stop;
}

std::string LossHistory::end_reason(const trace::EarlyStop::Rule& rule) const {
  const trace::EarlyStop stop = early_stop(rule);
  if (!stop.is_due()) return "";
  const std::int64_t since = stop.state().since_better;
  const std::string times = base::counted(since, "evaluation");
  if (!stop.state().best) return fmt::format("the evaluation loss was not finite for {}", times);
  const Loss& best = *(evaluations_.end() - 1 - since);
  const std::string by =
      rule.min_delta > 0 ? fmt::format(" by more than {:.4g}", rule.min_delta) : std::string();
  return fmt::format("the evaluation loss was not better{} than the {:.4g} of step {} for {}", by,
                     best.value, number(best.step), times);
}

std::string LossHistory::divergence() const {
  if (!latest_ || is_sound(*latest_)) return "";
  if (skipped_ > 0 && !good_) return "no step was finite, so none has changed a weight";
  if (not_finite_) {
    return fmt::format(
        "the loss or a gradient was not finite at step {}, and the weights of that "
        "step are not known to be good",
        number(latest_->step));
  }
  return fmt::format(
      "the loss has diverged: it is {:.4g} at step {}, more than the {:.4g} of a guess "
      "(ln(vocabulary)); it was {:.4g} at step {}",
      latest_->value, number(latest_->step), guess_, best_->value, number(best_->step));
}

std::map<Step, LossHistory::Loss> evaluations_of(const fs::path& run) {
  std::map<Step, LossHistory::Loss> all;
  each_object(run / base::kEventsFile, [&](const json& event) {
    if (is(event, "event", "training")) {
      all.erase(all.upper_bound(Step{integer(event, "from")}), all.end());
    } else if (is(event, "event", "evaluated")) {
      const LossHistory::Loss loss = loss_of(event, "tokens");
      all.insert_or_assign(loss.step, loss);
    }
  });
  return all;
}

LossHistory read_losses(const fs::path& run, double guess) {
  LossHistory losses(guess);
  const std::map<Step, LossHistory::Loss> evaluations = evaluations_of(run);
  auto next = evaluations.begin();
  const auto evaluate = [&](auto end) {
    for (; next != end; ++next) losses.evaluated(next->second);
  };
  each_object(run / base::kMetricsFile, [&](const json& line) {
    const LossHistory::Loss loss = loss_of(line, "targets");
    // The lines of these steps may be lost: the disk was full.
    if (next != evaluations.end() && next->first < loss.step)
      evaluate(evaluations.lower_bound(loss.step));
    // A step without targets has no loss.
    if (!is(line, "targets", 0)) losses.trained(loss, is(line, "skipped", true));
    if (next != evaluations.end() && next->first == loss.step) evaluate(std::next(next));
  });
  evaluate(evaluations.end());
  return losses;
}

}  // namespace strait::run

#include "tests/framework/sync/quadratic.h"

#include <cmath>
#include <numeric>

#include "tests/framework/sync/random_stage.h"

namespace strait::sync {
namespace {

constexpr float kBeta1 = 0.9F;
constexpr float kBeta2 = 0.99F;
constexpr float kTiny = 1e-8F;

}  // namespace

Quadratic::Quadratic(DirectRound& stage, std::uint64_t seed, const Settings& settings)
    : stage_(stage), settings_(settings), random_(seed) {
  const std::vector<float> common = random_values(stage.layout(), random_);
  for (std::size_t i = 0; i < stage.size(); ++i) {
    auto& target = targets_.emplace_back(random_values(stage.layout(), random_, settings.apart));
    for (std::size_t j = 0; j < target.size(); ++j) target[j] += common[j];
  }
}

void Quadratic::step(std::int64_t step) {
  std::vector<std::uint32_t> all(stage_.size());
  std::iota(all.begin(), all.end(), 0U);
  this->step(step, all);
}

void Quadratic::step(std::int64_t number, const std::vector<std::uint32_t>& members) {
  const store::Step step = step_number(number);
  for (const auto member : members) make_gradient(member, members.size());
  stage_.pass({step, Hook::gradient});
  stage_.pass({step, Hook::clipped});
  stage_.before_update(step);
  for (const auto member : members) update(member, step);
  stage_.pass({step, Hook::update});
}

void Quadratic::look(std::int64_t steps) { stage_.pass({step_number(steps), Hook::model_read}); }

void Quadratic::make_gradient(std::size_t number, std::size_t present) {
  DirectReplica& replica = stage_.replica(number);
  std::vector<float> noise(replica.weights.size());
  if (settings_.noise > 0) noise = random_values(stage_.layout(), random_, settings_.noise);
  const float share =
      replica.method->traits.sums_gradients ? 1.0F / static_cast<float>(present) : 1.0F;
  for (std::size_t i = 0; i < noise.size(); ++i) {
    replica.gradient[i] = share * (replica.weights[i] - targets_[number][i] + noise[i]);
  }
}

void Quadratic::update(std::size_t number, store::Step step) {
  DirectReplica& replica = stage_.replica(number);
  if (!settings_.adam) {
    for (std::size_t i = 0; i < replica.weights.size(); ++i) {
      replica.weights[i] -= settings_.learning_rate * replica.gradient[i];
    }
    return;
  }
  const bool moments = replica.method->update_rule(step) != UpdateRule::moment_given;
  for (std::size_t i = 0; i < replica.weights.size(); ++i) {
    const float gradient = replica.gradient[i];
    float& first = replica.first_moment[i];
    float& second = replica.second_moment[i];
    if (moments) {
      first = kBeta1 * first + (1 - kBeta1) * gradient;
      second = kBeta2 * second + (1 - kBeta2) * gradient * gradient;
    }
    replica.weights[i] -= settings_.learning_rate * first / (std::sqrt(second) + kTiny);
  }
}

double Quadratic::distance(const std::vector<float>& model) const {
  double away = 0;
  double size = 0;
  for (std::size_t i = 0; i < model.size(); ++i) {
    double target = 0;
    for (const auto& each : targets_) {
      target += static_cast<double>(each[i]) / static_cast<double>(targets_.size());
    }
    away += (static_cast<double>(model[i]) - target) * (static_cast<double>(model[i]) - target);
    size += target * target;
  }
  return std::sqrt(away / size);
}

}  // namespace strait::sync

#include "tests/framework/sync/random_stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace strait::sync {

Layout random_layout(std::mt19937_64& random, const std::vector<PieceSpec>& tied) {
  std::vector<PieceSpec> specs = tied;
  const std::size_t count = 1 + random() % 6;
  for (std::size_t i = 0; i < count; ++i) {
    PieceSpec spec;
    spec.name = fmt::format("piece{}.{}", random() % 1000, i);
    const std::size_t dimensions = 1 + random() % 3;
    for (std::size_t d = 0; d < dimensions; ++d) {
      spec.shape.push_back(static_cast<std::int64_t>(1 + random() % (d == 2 ? 3 : 40)));
    }
    specs.push_back(spec);
  }
  return Layout(specs);
}

std::vector<float> random_values(const Layout& layout, std::mt19937_64& random, double spread) {
  std::normal_distribution<double> normal(0, spread);
  std::vector<float> values(static_cast<std::size_t>(layout.size()));
  for (const Piece& piece : layout.pieces()) {
    for (auto i = piece.range.first; i < piece.range.last; ++i) {
      values[static_cast<std::size_t>(i)] = static_cast<float>(normal(random));
    }
  }
  return values;
}

void start_at_random(DirectRound& stage, std::mt19937_64& random) {
  const std::vector<float> weights = random_values(stage.layout(), random);
  for (std::size_t i = 0; i < stage.size(); ++i) {
    std::ranges::copy(weights, stage.replica(i).weights.begin());
  }
  stage.start();
}

std::vector<std::vector<float>> slots_of(DirectReplica& replica) {
  std::vector<std::vector<float>> all = {replica.weights, replica.gradient, replica.first_moment,
                                         replica.second_moment};
  for (const SlotNeed& need : replica.slots.needs()) {
    auto& values = all.emplace_back(replica.weights.size());
    replica.slots.load(need.name, {0, static_cast<std::int64_t>(values.size())}, values);
  }
  return all;
}

bool same_bits(const std::vector<float>& one, const std::vector<float>& other) {
  return one.size() == other.size() &&
         std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0;
}

bool same_bits(const std::vector<std::vector<float>>& one,
               const std::vector<std::vector<float>>& other) {
  return std::ranges::equal(one, other,
                            [](const auto& a, const auto& b) { return same_bits(a, b); });
}

std::vector<float> model_of(DirectReplica& replica) {
  std::vector<float> model(replica.weights.size());
  replica.slots.load(replica.method->traits.model_slot,
                     {0, static_cast<std::int64_t>(model.size())}, model);
  return model;
}

}  // namespace strait::sync

#include "framework/sync/forecast.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>

#include "framework/net/wire_format.h"
#include "framework/sync/methods.h"
#include "framework/sync/round.h"
#include "tests/framework/sync/quadratic.h"
#include "tests/framework/sync/random_stage.h"
#include "tests/framework/sync/usual_settings.h"

namespace strait::sync {
namespace {

struct Seen {
  double step_bytes = 0;
  double round_bytes = 0;
};

// What a replica sends in some steps in the middle of a run: the mean over all replicas.
Seen bytes_seen(const SyncSettings& settings, const Layout& layout, std::size_t members,
                std::int64_t first, std::int64_t last) {
  std::mt19937_64 random(1);
  DirectRound stage(layout, members, [settings] { return make_method(settings); });
  start_at_random(stage, random);
  Quadratic problem(stage, 2, {.learning_rate = 0.001F, .adam = true});
  const double header = kRoundMessageBytes + net::kHeaderBytes;
  Seen seen;
  std::uint64_t counted = stage.opened();
  for (std::int64_t step = 0; step < last; ++step) {
    problem.step(step);
    const bool opened = stage.opened() > counted;
    counted = stage.opened();
    if (step < first || !opened) continue;
    double bytes = 0;
    for (std::size_t member = 0; member < members; ++member) {
      bytes += static_cast<double>(stage.sent()[member]);
      bytes += static_cast<double>(stage.sent_frames()[member]) * header;
    }
    bytes = bytes / static_cast<double>(members) + static_cast<double>(members - 1) * header;
    seen.step_bytes += bytes / static_cast<double>(last - first);
    seen.round_bytes = std::max(seen.round_bytes, bytes);
  }
  return seen;
}

class ForecastTest : public testing::TestWithParam<std::string> {};

TEST_P(ForecastTest, MatchesBytesOfRounds) {
  const Layout layout({{.name = "a", .shape = {300, 500}},
                       {.name = "norm", .shape = {900}},
                       {.name = "b", .shape = {200, 300}},
                       {.name = "tied", .shape = {100, 100}, .tied = true}});
  for (const std::size_t members : {1, 2, 3, 6}) {
    SCOPED_TRACE(members);
    SyncSettings settings = usual(GetParam());
    settings.every = 6;
    settings.fragments = 3;
    settings.rank = 3;
    // The size of a cocktail packet depends on its values.
    const double slack = GetParam() == "cocktail" ? 0.15 : 0.06;
    for (const bool narrow : {false, true}) {
      settings.narrow_wire = narrow;
      const Seen seen = bytes_seen(settings, layout, members, 6, 18);
      const Forecast costs = forecast(settings, layout, members);
      EXPECT_NEAR(costs.step_bytes, seen.step_bytes, slack * seen.step_bytes + 1);
      if (GetParam() == "onebit_adam") continue;  // its heaviest round is in the warm-up
      EXPECT_NEAR(costs.round_bytes, seen.round_bytes, slack * seen.round_bytes + 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ForecastTest, testing::ValuesIn(method_names()),
                         [](const auto& method) { return method.param; });

TEST(Methods, BuiltInOffersAreCompleteAndHaveDistinctRanks) {
  std::set<int> ranks;
  for (const std::string& name : method_names()) {
    const MethodOffer& offer = methods().named(name);
    EXPECT_NE(offer.forecast, nullptr) << name;
    EXPECT_NE(offer.coding_cost, nullptr) << name;
    EXPECT_LT(offer.rank, MethodOffer().rank) << name;
    ranks.insert(offer.rank);
  }
  EXPECT_EQ(ranks.size(), method_names().size());
}

TEST(Methods, ChecksQuoteTheRecipe) {
  const RecipeFacts recipe{[](std::string_view key) { return "at " + std::string(key); }};
  SyncSettings settings = usual("streaming_diloco");
  settings.every = 3;
  EXPECT_THAT(methods().named("streaming_diloco").check(settings, recipe),
              testing::StartsWith("sync.fragments is 4 (at sync.fragments), but sync.every is 3 "
                                  "(at sync.every)"));
  settings.every = 4;
  EXPECT_EQ(methods().named("streaming_diloco").check(settings, recipe), "");
}

TEST(Forecast, CountsWarmupByItsShareOfTheRun) {
  SyncSettings settings = usual("onebit_adam");
  const Layout layout({{.name = "a", .shape = {1000, 1000}}});
  settings.steps = 150;
  const Forecast costs = forecast(settings, layout, 4);
  settings.steps = 0;
  const double signs = forecast(settings, layout, 4).step_bytes;
  EXPECT_NEAR(costs.step_bytes, costs.round_bytes / 15 + signs * 14 / 15, 1);
}

TEST(Forecast, CountsSlots) {
  const Layout layout({{.name = "a", .shape = {64, 64}}});
  const auto slots = [&](const std::string& method) {
    return forecast(usual(method), layout, 2).slot_bytes / 4096;
  };
  EXPECT_EQ(slots("allreduce"), 0);
  EXPECT_EQ(slots("diloco"), 8);
  EXPECT_EQ(slots("noloco"), 12);
  EXPECT_EQ(slots("powersgd"), 12) << "the slots and a snapshot of them";
}

TEST(Forecast, CountsFramesThatARoundHolds) {
  const Layout layout({{.name = "a", .shape = {1024, 1024}}});
  const auto frames = [&](const std::string& method, std::size_t members) {
    return forecast(usual(method), layout, members).frame_bytes / (4 * 1024 * 1024);
  };
  // The result, the own part, and on the links a part in both directions.
  EXPECT_NEAR(frames("allreduce", 2), 1 + 0.5 + 2 * 0.5, 0.01);
  EXPECT_NEAR(frames("allreduce", 4), 1 + 0.25 + 2 * 3 * 0.25, 0.01);
  EXPECT_NEAR(frames("bytegrad", 2), frames("allreduce", 2) / 4, 0.02);
  // Reads its whole contribution when the round is applied.
  EXPECT_NEAR(frames("onebit_adam", 2), 1 + 1 + 2 * 0.5, 0.01);
  // Weights and their changes of both, held and on the link; then the mean for a checkpoint, in
  // frames of another size: the result, the own weights, and on the link a part in both directions.
  EXPECT_NEAR(frames("noloco", 2), 2 * (2 + 2) + 1 + 1 + 2 * 0.5, 0.02);
  EXPECT_EQ(frames("allreduce", 1), 0);
  SyncSettings rare = usual("diloco");
  rare.every = 1000;
  rare.steps = 5000;
  EXPECT_NEAR(forecast(rare, layout, 2).frame_bytes,
              forecast(usual("diloco"), layout, 2).frame_bytes, 1);
}

TEST(Forecast, CountsNoMoreThanAWindowOnALink) {
  const Layout layout({{.name = "a", .shape = {1 << 14, 1 << 14}}});
  const double whole = 4.0 * (1 << 28);
  const double window = 64 << 20;
  EXPECT_NEAR(forecast(usual("allreduce"), layout, 2).frame_bytes, 1.5 * whole + 2 * window,
              0.01 * whole);
}

// Replicas whose weights walk at random, independently: by how many steps the model is behind their
// mean, in the second half of the run. With `drift` all replicas move steadily in the same
// direction.
double lateness(const SyncSettings& settings, bool drift) {
  constexpr std::int64_t kSteps = 400;
  const Layout layout({{.name = "a", .shape = {128, 128}}});
  DirectRound stage(layout, 3, [settings] { return make_method(settings); });
  stage.start();
  std::mt19937_64 random(8);
  std::normal_distribution<float> pace(0, 1e-4F);
  const auto size = static_cast<std::size_t>(layout.size());
  std::vector<float> first_way(size);
  for (float& value : first_way) value = pace(random);
  std::vector<double> mean(size);  // of where the replicas are
  double behind = 0;
  double squares = 0;  // of the mean's steps
  for (std::int64_t step = 0; step < kSteps; ++step) {
    stage.before_update(step_number(step));
    for (std::size_t i = 0; i < size; ++i) {
      double moved = 0;
      for (std::size_t replica = 0; replica < stage.size(); ++replica) {
        const float change = drift ? first_way[i] : pace(random);
        stage.replica(replica).weights[i] += change;
        moved += static_cast<double>(change) / static_cast<double>(stage.size());
      }
      mean[i] += moved;
    }
    stage.pass({step_number(step), Hook::update});
    if (step < kSteps / 2 || step % 10 != 0) continue;
    const std::vector<float> model = model_of(stage.replica(0));
    const double of_the_way = drift ? static_cast<double>(step + 1) : 1;
    for (std::size_t i = 0; i < size; ++i) {
      behind += (mean[i] - static_cast<double>(model[i])) * mean[i] / of_the_way;
      const auto steady = static_cast<double>(first_way[i]);
      squares += drift ? steady * steady : 1e-8 / static_cast<double>(stage.size());
    }
  }
  return behind / squares;
}

std::span<const Strength> strengths_of_cocktail(std::int64_t steps) {
  return methods().named("cocktail").strengths(steps);
}

SyncSettings cocktail(const Strength& strength) {
  SyncSettings settings = usual("cocktail");
  settings.random = strength.random;
  settings.top = strength.top;
  settings.bits = strength.bits;
  settings.outer_learning_rate = 1;
  settings.outer_momentum = 0;
  return settings;
}

TEST(Forecast, StalenessOfCocktailMatchesRounds) {
  const Layout layout({{.name = "a", .shape = {128, 128}}});
  std::vector<Strength> tried = {{0.1, 0.2, 4},   {0.1, 1.0, 4},  {0.25, 0.05, 4},
                                 {0.08, 0.35, 3}, {0.1, 0.35, 2}, {0.1, 0.5, 1}};
  tried.insert(tried.end(), strengths_of_cocktail(1).begin(), strengths_of_cocktail(1).end());
  for (const Strength& strength : tried) {
    const SyncSettings settings = cocktail(strength);
    const double staleness = forecast(settings, layout, 3).staleness;
    EXPECT_NEAR(lateness(settings, false) / staleness, 1, 0.25) << strength.text();
    // With few bits a value that drifts away from the others needs many turns.
    if (strength.bits >= 4) {
      EXPECT_NEAR(lateness(settings, true) / staleness, 1, 0.25) << strength.text();
    }
  }
}

TEST(Forecast, StrongerCocktailSendsLessAndIsStaler) {
  const Layout layout({{.name = "a", .shape = {1024, 1024}}});
  for (const std::int64_t steps : {0, 1, 100'000}) {
    Forecast before = {.step_bytes = 1e9};
    for (const Strength& strength : strengths_of_cocktail(steps)) {
      const Forecast costs = forecast(cocktail(strength), layout, 4);
      EXPECT_LT(costs.step_bytes, 0.75 * before.step_bytes) << strength.text();
      EXPECT_GT(costs.staleness, before.staleness) << strength.text();
      before = costs;
    }
  }
}

// The strengths of long runs are fresh, or stale enough for an outer step with momentum. In
// between, replicas train alone for too long to step as one, and not long enough for momentum to
// gain.
TEST(Forecast, StrengthsOfLongRunsAreFreshOrHaveMomentum) {
  SyncSettings settings = usual("cocktail");
  settings.steps = 5000;
  EXPECT_LT(strengths_of_cocktail(settings.steps).size(), strengths_of_cocktail(100).size());
  for (const Strength& strength : strengths_of_cocktail(settings.steps)) {
    settings.random = strength.random;
    const auto method = make_method(settings);
    const bool fresh = method->update_rule(store::Step{}) == UpdateRule::own_gradient;
    EXPECT_NE(fresh, std::ranges::any_of(method->traits.slots, &SlotNeed::shared))
        << strength.text();
  }
}

// Signs are random, so no coder gets them below a bit.
TEST(Forecast, OneBitValuesTakeASign) {
  const Layout layout({{.name = "a", .shape = {1000, 1000}}});
  for (const Strength& strength : {Strength{1, 1, 1}, Strength{0.12, 1, 1}}) {
    const SyncSettings settings = cocktail(strength);
    const double seen = bytes_seen(settings, layout, 2, 6, 18).step_bytes;
    EXPECT_NEAR(forecast(settings, layout, 2).step_bytes / seen, 1, 0.03) << strength.text();
  }
}

// The round that closes a run counts neither for the staleness nor for the heaviest round. In a
// process of its own, because an offer cannot be removed.
TEST(Forecast, OfferWithoutForecastIsForecastFromItsPlans) {
  const auto check = [] {
    methods().add({"unknown",
                   [](const SyncSettings& settings) {
                     SyncSettings known = settings;
                     known.method = "streaming_diloco";
                     return make_method(known);
                   },
                   {},
                   4.25});
    const Layout layout({{.name = "a", .shape = {1024, 1024}}});
    SyncSettings settings = usual("unknown");
    settings.late = 20;
    for (settings.steps = 60; settings.steps < 2000; settings.steps *= 2) {
      const Forecast costs = forecast(settings, layout, 2);
      settings.method = "streaming_diloco";
      const Forecast known = forecast(settings, layout, 2);
      settings.method = "unknown";
      std::cerr << fmt::format("{} steps: {:.0f} bytes a round instead of {:.0f}, {} late\n",
                               settings.steps, costs.round_bytes, known.round_bytes,
                               costs.staleness);
      if (std::abs(costs.round_bytes / known.round_bytes - 1) > 0.05 || costs.staleness < 20) {
        std::_Exit(1);
      }
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(check(), testing::ExitedWithCode(0), "");
}

// A decoder with gated layers, without tied weights.
struct Decoder {
  std::int64_t width, layers, inner, keys, vocabulary;
};
constexpr Decoder kDecoders[] = {{2048, 16, 8192, 512, 32000},
                                 {4096, 32, 11008, 4096, 32000},
                                 {8192, 48, 22016, 1024, 32000},
                                 {8192, 80, 28672, 1024, 32000}};

Layout layout_of(const Decoder& of) {
  std::vector<PieceSpec> specs;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    specs.push_back({name, std::move(shape)});
  };
  add("embedding", {of.vocabulary, of.width});
  for (std::int64_t i = 0; i < of.layers; ++i) {
    const std::string layer = std::to_string(i);
    for (const char* name : {".q", ".o"}) add(layer + name, {of.width, of.width});
    for (const char* name : {".k", ".v"}) add(layer + name, {of.keys, of.width});
    for (const char* name : {".gate", ".up"}) add(layer + name, {of.inner, of.width});
    add(layer + ".down", {of.width, of.inner});
    for (const char* name : {".norm1", ".norm2"}) add(layer + name, {of.width});
  }
  add("norm", {of.width});
  add("head", {of.vocabulary, of.width});
  return Layout(specs);
}

std::string size_text(double bytes) {
  const double gigabytes = bytes / 1e9;
  return fmt::format("{:.{}f}", gigabytes, gigabytes < 0.1 ? 4 : gigabytes < 10 ? 2 : 0);
}

// By number of replicas, for the 7 B model; and by model, for 8 replicas.
std::vector<std::string> rows() {
  std::vector<std::string> rows;
  for (const std::string& method : method_names()) {
    const Layout layout = layout_of(kDecoders[1]);
    std::string row = fmt::format("| {} |", method);
    for (const std::size_t members : {2, 8, 64, 1024}) {
      row += fmt::format(" {} |", size_text(forecast(usual(method), layout, members).step_bytes));
    }
    const Forecast costs = forecast(usual(method), layout, 8);
    rows.push_back(row + fmt::format(" {} | {} | {:.4g} |", size_text(costs.round_bytes),
                                     size_text(costs.slot_bytes), costs.staleness));
  }
  for (const std::string& method : method_names()) {
    std::string row = fmt::format("| {} |", method);
    for (const Decoder& decoder : kDecoders) {
      const Forecast costs = forecast(usual(method), layout_of(decoder), 8);
      row += fmt::format(" {} | {:.1f} |", size_text(costs.step_bytes), costs.step_bytes * 8 / 1e9);
    }
    rows.push_back(row);
  }
  return rows;
}

TEST(Forecast, ScalePageMatchesForecasts) {
  std::ifstream file("framework/sync/SCALE.md");
  std::stringstream page;
  page << file.rdbuf();
  std::string all;
  bool same = true;
  for (const std::string& row : rows()) {
    all += row + "\n";
    same &= page.str().find(row + "\n") != std::string::npos;
  }
  EXPECT_TRUE(same) << "framework/sync/SCALE.md should say:\n" << all;
}

}  // namespace
}  // namespace strait::sync

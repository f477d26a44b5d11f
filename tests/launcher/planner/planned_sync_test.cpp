#include "launcher/planner/planned_sync.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "framework/sync/methods.h"
#include "launcher/base/errors.h"
#include "launcher/planner/plan_text.h"
#include "launcher/planner/planned_model.h"
#include "launcher/recipe/recipe_sync_keys.h"
#include "models/model_config.h"
#include "stages/stage_layout.h"
#include "tests/launcher/user_error.h"

namespace strait::planner {
namespace {

models::ModelConfig config(bool tied) {
  return models::parse_config(
      fmt::format(
          R"({{"model_type": "gpt2", "n_layer": 4, "n_embd": 8, "n_head": 2, "vocab_size": 50,
              "tie_word_embeddings": {}}})",
          tied),
      "config.json");
}

plan::Plan plan_of(std::uint32_t stages, std::uint32_t replicas, const std::string& method = "") {
  plan::Plan plan;
  plan.hosts = {{.name = "localhost", .cores = 4}};
  plan.recipe.pipeline.stages = stages;
  plan.recipe.pipeline.replicas = replicas;
  plan.recipe.sync.method = method;
  plan.steps = 100;
  plan.micro_batches = 2;
  plan.step_seconds = 1;
  for (std::uint32_t replica = 0; replica < replicas; ++replica) {
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
      plan::Plan::Process process;
      process.name = {stage, replica};
      const int last = stage + 1 == stages ? 5 : static_cast<int>(stage);
      process.chunks = {{static_cast<int>(stage), last}};
      plan.processes.push_back(process);
    }
  }
  return plan;
}

plan::Plan planned(std::uint32_t stages, std::uint32_t replicas, const std::string& method = "") {
  plan::Plan plan = plan_of(stages, replicas, method);
  plan_sync(plan, models::describe(config(true)));
  return plan;
}

TEST(PlannedSync, LinksReplicasOfStageAndFirstStagesForConsensus) {
  for (const std::uint32_t replicas : {2U, 3U, 5U}) {
    const plan::Plan plan = planned(3, replicas);
    const auto pairs = replicas * (replicas - 1) / 2;
    std::set<std::string> names;
    std::size_t votes = 0;
    for (const plan::Plan::Link& link : plan.links) {
      EXPECT_EQ(link.connects.stage, link.listens.stage);
      EXPECT_LT(link.connects.replica, link.listens.replica);
      EXPECT_GT(link.forward_bytes, 0) << link.name;
      EXPECT_EQ(link.forward_bytes, link.backward_bytes);
      names.insert(link.name);
      if (link.use != plan::Plan::Use::consensus) continue;
      ++votes;
      EXPECT_EQ(link.connects.stage, 0U);
    }
    EXPECT_EQ(plan.links.size(), 4 * pairs);
    EXPECT_EQ(names.size(), plan.links.size());
    EXPECT_EQ(votes, pairs);
    EXPECT_TRUE(names.contains("replica 1.0~1.1"));
    EXPECT_TRUE(names.contains("consensus 0.0~0.1"));
  }
}

TEST(PlannedSync, PlansNothingForOneReplica) {
  const plan::Plan plan = planned(2, 1);
  EXPECT_EQ(plan.sync_method, "");
  EXPECT_TRUE(plan.links.empty());
  EXPECT_TRUE(plan.sync_offers.empty());
}

TEST(PlannedSync, CountsStateOfMethod) {
  const plan::Plan exact = planned(2, 2, "allreduce");
  const plan::Plan cocktail = planned(2, 2, "cocktail");
  const models::ModelDescription model = models::describe(config(true));
  for (std::size_t i = 0; i < exact.processes.size(); ++i) {
    const std::int64_t size = stages::stage_layout(model, exact.processes[i].chunks).size();
    EXPECT_EQ(exact.processes[i].state_bytes, 0);
    EXPECT_EQ(cocktail.processes[i].state_bytes,
              2 * 4 * size);  // reference and residual; too short for momentum
  }
}

TEST(PlannedSync, CountsFramesOfRoundsAndTheGradientThatALossNeedsAgain) {
  const models::ModelDescription model = models::describe(config(true));
  plan::Plan stops = plan_of(2, 2, "allreduce");
  stops.recipe.sync.group = recipe::GroupUse::never;
  plan::Plan continues = stops;
  continues.recipe.sync.on_loss = recipe::LossRule::continue_run;
  plan::Plan sums = plan_of(2, 2, "allreduce");
  plan_sync(stops, model);
  plan_sync(continues, model);
  plan_sync(sums, model);
  for (std::size_t i = 0; i < stops.processes.size(); ++i) {
    const std::int64_t bytes = 4 * stages::stage_layout(model, stops.processes[i].chunks).size();
    EXPECT_GE(stops.processes[i].sync_bytes, bytes);
    EXPECT_EQ(continues.processes[i].sync_bytes, stops.processes[i].sync_bytes + bytes);
    EXPECT_EQ(sums.processes[i].sync_bytes, bytes) << "in shared memory";
    EXPECT_EQ(stops.host_bytes(stops.processes[i]), stops.processes[i].sync_bytes);
  }
}

TEST(PlannedSync, CountsMomentsThatReplicasShareOnce) {
  const models::ModelDescription model = models::describe(config(true));
  for (const auto& [moments, bytes] :
       {std::pair{recipe::Moments::float32, 8}, {recipe::Moments::int8, 2}}) {
    for (const std::uint32_t replicas : {2U, 3U}) {
      plan::Plan plan = plan_of(1, replicas, "allreduce");
      plan.recipe.sync.group = recipe::GroupUse::always;
      plan.recipe.sync.share_state = true;
      plan.recipe.train.moments = moments;
      const sync::Layout layout = stages::stage_layout(model, plan.processes[0].chunks);
      std::int64_t values = 0;
      for (const sync::Piece& piece : layout.pieces()) values += piece.range.count();
      for (plan::Plan::Process& process : plan.processes) process.state_bytes = bytes * values;
      plan_sync(plan, model);
      std::int64_t all = 0;
      for (const plan::Plan::Process& process : plan.processes) {
        all += process.state_bytes;
        EXPECT_LT(process.state_bytes, bytes * values);
      }
      EXPECT_EQ(all, bytes * values);
    }
  }
}

TEST(PlannedSync, RefusesToShareMomentsThatAMethodChanges) {
  plan::Plan plan = plan_of(1, 2, "onebit_adam");
  plan.recipe.sync.share_state = true;
  EXPECT_THAT(base::user_error(base::ExitCode::bad_input,
                               [&] { plan_sync(plan, models::describe(config(true))); }),
              testing::AllOf(testing::StartsWith("sync.share_state is true"),
                             testing::HasSubstr("leave sync.share_state out")));
}

TEST(PlannedSync, UsesDefaultsForMethodsThatRecipeDoesNotSelect) {
  recipe::Recipe recipe;
  recipe.pipeline.replicas = 2;
  recipe.sync.method = "cocktail";
  recipe.sync.random = 0.5;
  recipe.sync.bits = 8;
  recipe.seed = 9;
  EXPECT_EQ(sync_settings(recipe, "cocktail", 10).random, 0.5);
  EXPECT_EQ(sync_settings(recipe, "streaming_diloco", 10).bits, 4);
  EXPECT_EQ(sync_settings(recipe, "noloco", 10).outer_momentum, std::nullopt);
  recipe.sync.outer_momentum = 0.3;
  EXPECT_EQ(sync_settings(recipe, "cocktail", 10).outer_momentum, 0.3);
  EXPECT_EQ(sync_settings(recipe, "onebit_adam", 10).steps, 10);
  EXPECT_EQ(sync_settings(recipe, "onebit_adam", 10).seed, 9U);
}

TEST(PlannedSync, ForecastsEveryMethod) {
  const plan::Plan plan = planned(2, 4);
  const auto names = sync::method_names();
  ASSERT_EQ(plan.sync_offers.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const plan::Plan::SyncOffer& offer = plan.sync_offers[i];
    EXPECT_EQ(offer.method, names[i]);
    EXPECT_GT(offer.step_bytes, 0);
    EXPECT_GE(offer.round_bytes, offer.step_bytes);
    EXPECT_GE(offer.step_seconds, plan.step_seconds);
  }
}

std::string chosen(double link_megabits) {
  plan::Plan plan = plan_of(2, 4, "auto");
  plan.recipe.hosts.link_megabits = link_megabits;
  plan_sync(plan, models::describe(config(true)));
  return plan.sync_method;
}

TEST(PlannedSync, AutoTakesExactMeansOnFastLinksAndCompressesOnSlowOnes) {
  EXPECT_EQ(chosen(1e6), "allreduce");
  // 6,250 bytes in the step of a second, for a stage of some 9,000 values.
  EXPECT_EQ(chosen(0.05), "cocktail");
}

constexpr const char* kWide =
    R"({"model_type": "gpt2", "n_layer": 4, "n_embd": 128, "n_head": 2, "vocab_size": 500})";

models::ModelDescription wide() {
  return models::describe(models::parse_config(kWide, "config.json"));
}

plan::Plan planned_on(double link_megabits, const recipe::Recipe::Sync& sync,
                      std::int64_t steps = 500) {
  plan::Plan plan = plan_of(1, 4, "auto");
  plan.recipe.sync = sync;
  plan.recipe.hosts.link_megabits = link_megabits;
  plan.steps = steps;
  plan_sync(plan, wide());
  return plan;
}

recipe::Recipe::Sync automatic() {
  recipe::Recipe::Sync sync;
  sync.method = recipe::kAutomaticSync;
  return sync;
}

const plan::Plan::SyncOffer& taken(const plan::Plan& plan) {
  const auto found =
      std::ranges::find_if(plan.sync_offers, [&](const plan::Plan::SyncOffer& offer) {
        return offer.method == plan.sync_method && offer.strength == plan.sync_strength;
      });
  EXPECT_NE(found, plan.sync_offers.end());
  return *found;
}

// Methods by rank, and the strengths of one method by staleness.
std::pair<std::size_t, double> staleness(const plan::Plan::SyncOffer& offer) {
  const std::vector<std::string> order = {"allreduce", "bytegrad", "onebit_adam",
                                          "cocktail",  "powersgd", "streaming_diloco",
                                          "diloco",    "noloco"};
  const auto place = std::ranges::find(order, offer.method) - order.begin();
  return {static_cast<std::size_t>(place), offer.staleness};
}

TEST(PlannedSync, AutoNeverChoosesStalerMethodForFasterLink) {
  std::set<std::string> seen;
  std::pair<std::size_t, double> before = {99, 0};
  for (double megabits = 1e-3; megabits < 1e4; megabits *= 1.25) {
    const plan::Plan plan = planned_on(megabits, automatic());
    const plan::Plan::SyncOffer& offer = taken(plan);
    SCOPED_TRACE(fmt::format("{} Mbit/s: {}", megabits, offer.name()));
    seen.insert(offer.name());
    EXPECT_LE(staleness(offer), before);
    before = staleness(offer);
    const auto cheapest =
        std::ranges::min_element(plan.sync_offers, {}, &plan::Plan::SyncOffer::slowdown);
    if (offer.slowdown > 1.05) {
      EXPECT_EQ(offer.slowdown, cheapest->slowdown);
    }
    for (const plan::Plan::SyncOffer& other : plan.sync_offers) {
      if (other.slowdown <= 1.05) {
        EXPECT_GE(staleness(other), staleness(offer)) << other.name();
      }
    }
  }
  for (const sync::Strength& strength : sync::methods().named("cocktail").strengths(500)) {
    EXPECT_THAT(seen, testing::Contains("cocktail " + strength.text()));
  }
  EXPECT_THAT(seen, testing::Contains("allreduce"));
}

std::vector<std::string> names_of(const std::vector<plan::Plan::SyncOffer>& offers) {
  std::vector<std::string> names;
  for (const plan::Plan::SyncOffer& offer : offers) names.push_back(offer.name());
  return names;
}

double slowdown(const plan::Plan& plan, const std::string& name) {
  const auto found = std::ranges::find_if(
      plan.sync_offers, [&](const plan::Plan::SyncOffer& offer) { return offer.name() == name; });
  return found == plan.sync_offers.end() ? 0 : found->slowdown;
}

// By hand, for cocktail 0.1/0.2/4 in a step of a second: a copy takes 4 bytes times the values by
// half of the memory's rate; where four processes of four threads have all of the host's cores the
// trainer feels all that the engine codes, where each finds another core nothing, and in between
// half. It always feels apply, as a quarter of what one thread takes.
TEST(PlannedSync, CountsTimeOfCoding) {
  plan::Plan plan = plan_of(1, 4, "cocktail");
  plan.speeds.hosts = {{.name = "localhost", .memory_bytes_per_second = 1e9}};
  plan.recipe.hosts.link_megabits = 1e6;
  for (plan::Plan::Process& process : plan.processes) process.threads = 4;
  const auto values =
      static_cast<double>(stages::stage_layout(wide(), plan.processes[0].chunks).size());
  const double copy = 4 * values / 0.5e9;
  const sync::CodingCost coding =
      sync::coding_cost(sync_settings(plan.recipe, "cocktail", plan.steps));
  EXPECT_GT(coding.trainer, 1);
  for (const auto& [cores, felt] :
       {std::pair{4, 1.0}, {16, 1.0}, {18, 0.5}, {20, 0.0}, {64, 0.0}}) {
    plan.hosts[0].cores = cores;
    plan_sync(plan, wide());
    EXPECT_NEAR(slowdown(plan, "cocktail 0.1/0.2/4"),
                1 + copy * (coding.engine * felt + coding.trainer / 4), 1e-4)
        << cores << " cores";
  }
}

// What closes a run is one round among many. 20 steps of one second hide a round of three,
// however long the run.
TEST(PlannedSync, HidesLateRoundsInRunsOfAnyLength) {
  const auto slowdown_of = [](std::int64_t late, std::int64_t steps) {
    plan::Plan plan = plan_of(1, 2, "streaming_diloco");
    plan.recipe.sync.late = late;
    plan.recipe.hosts.link_megabits = 0.3;
    plan.steps = steps;
    plan_sync(plan, wide());
    return slowdown(plan, "streaming_diloco");
  };
  for (const std::int64_t steps : {60, 300, 1024, 1025, 5000}) {
    EXPECT_LT(slowdown_of(20, steps), 1.01) << steps << " steps";
    EXPECT_GT(slowdown_of(0, steps), 1.05) << steps << " steps";
    EXPECT_EQ(slowdown_of(20, steps), slowdown_of(20, 1024)) << steps << " steps";
  }
  EXPECT_GT(slowdown_of(20, 20), 1.05);  // there is no other round
}

// The links are no reason to take a method that the processor has no time for.
TEST(PlannedSync, AutoAvoidsMethodsWithSlowCoding) {
  plan::Plan plan = plan_of(1, 4, "auto");
  plan.speeds.hosts = {{.name = "localhost", .memory_bytes_per_second = 2e9}};
  plan.recipe.hosts.link_megabits = 1e6;
  plan_sync(plan, wide());
  EXPECT_EQ(plan.sync_method, "allreduce");
  const std::string gentle =
      "cocktail " + sync::methods().named("cocktail").strengths(500).front().text();
  const std::string strong =
      "cocktail " + sync::methods().named("cocktail").strengths(500).back().text();
  EXPECT_GT(slowdown(plan, gentle), 1.05);
  EXPECT_GT(slowdown(plan, gentle), slowdown(plan, strong));
  EXPECT_GT(slowdown(plan, "onebit_adam"), slowdown(plan, "bytegrad"));
}

// Two hosts on a wide cable that is `seconds` long, with steps of a second.
plan::Plan planned_apart(double seconds, const recipe::Recipe::Sync& sync) {
  plan::Plan plan = plan_of(1, 2);
  plan.hosts = {{.name = "here", .cores = 4}, {.name = "there", .cores = 4}};
  plan.processes[1].host_index = 1;
  plan.speeds.hosts = {{.name = "here", .memory_bytes_per_second = 1e15}};
  plan.speeds.links = {{.from = "here", .to = "there", .bits_per_second = 4e9, .seconds = seconds}};
  plan.recipe.sync = sync;
  plan_sync(plan, wide());
  return plan;
}

// By hand: whatever the method, each waits for the other's vote. A round takes three latencies:
// contribution, result, ready. With two exchanges it takes five; between two there is no result.
TEST(PlannedSync, CountsLatencyOfEachExchange) {
  for (const double way : {0.001, 0.1, 0.3, 1.0, 3.0}) {
    const plan::Plan plan = planned_apart(way, {});
    SCOPED_TRACE(fmt::format("{} s one way", way));
    const double consensus = 1 + way;
    const double tolerance = 0.02;
    EXPECT_NEAR(slowdown(plan, "allreduce"), consensus + 3 * way, tolerance);
    EXPECT_NEAR(slowdown(plan, "onebit_adam"), consensus + 3 * way, tolerance);
    EXPECT_NEAR(slowdown(plan, "powersgd"), consensus + 5 * way, tolerance);
    // Replicas that train apart wait for no consensus.
    EXPECT_NEAR(slowdown(plan, "cocktail 0.1/0.2/4"), std::max(1.0, 3 * way), tolerance);
    EXPECT_NEAR(slowdown(plan, "diloco"), 1 + 3 * way / 100, tolerance);
    EXPECT_NEAR(slowdown(plan, "noloco"), 1 + 2 * way / 50, tolerance);
    recipe::Recipe::Sync goes_on;  // where all are ready to apply before they vote on the step
    goes_on.on_loss = recipe::LossRule::continue_run;
    EXPECT_NEAR(slowdown(planned_apart(way, goes_on), "cocktail 0.1/0.2/4"),
                way + std::max(1.0, 3 * way), tolerance);
  }
}

// Simulated and stated paths count as measured ones do; on one host, too.
TEST(PlannedSync, CountsLatencyOfSimulatedLinks) {
  plan::Plan plan = plan_of(1, 2);
  plan.recipe.hosts.simulate.delay = std::chrono::milliseconds(100);
  plan_sync(plan, wide());
  EXPECT_DOUBLE_EQ(consensus_seconds(plan), 0.1);
  plan.sync_method = "diloco";
  EXPECT_EQ(consensus_seconds(plan), 0);
  plan.recipe.sync.on_loss = recipe::LossRule::continue_run;
  EXPECT_DOUBLE_EQ(consensus_seconds(plan), 0.1);
  EXPECT_NEAR(slowdown(plan, "allreduce"), 1 + 4 * 0.1, 0.03);
  plan.recipe.hosts.simulate_link = "replica 0.0~0.1";  // of one link, which plans do not expect
  EXPECT_EQ(consensus_seconds(plan), 0);
}

TEST(PlannedSync, ForecastOfAllStepsContainsSync) {
  plan::Plan plan = planned_apart(0.1, {});
  plan.epoch_steps = 10;
  plan.first_epoch_step_seconds = 2;  // one more than later ones
  const double seconds = 100 * taken(plan).step_seconds + 10 * 1.0;
  EXPECT_GT(seconds, 100 * (1 + 4 * 0.1) + 10);
  EXPECT_THAT(forecast_text(plan),
              testing::HasSubstr("; " + forecast_seconds(plan, seconds) + " in all"));
  EXPECT_THAT(forecast_text(plan),
              testing::HasSubstr(forecast_seconds(plan, taken(plan).step_seconds) + " a step"));
}

// Three replicas, of which one is far: by hand, in a sum of b bytes each sends b/3 to every other
// one twice; the far one needs most, and no byte between the others takes as long as its bytes.
TEST(PlannedSync, EachByteTravelsAtTheRateOfItsOwnPath) {
  const auto added = [](double near, double far) {
    plan::Plan plan = plan_of(1, 3, "allreduce");
    plan.hosts = {{.name = "a", .cores = 4}, {.name = "b", .cores = 4}, {.name = "c", .cores = 4}};
    plan.processes[1].host_index = 1;
    plan.processes[2].host_index = 2;
    plan.speeds.links = {{"a", "b", near, 0, 0}, {"a", "c", far, 0, 0}, {"b", "c", far, 0, 0}};
    plan_sync(plan, wide());
    return sync_seconds(plan);
  };
  const double narrow = added(1e7, 1e7);
  const double mixed = added(4e9, 1e7);
  EXPECT_NEAR(mixed, narrow, 0.02 * narrow) << "the far one has only slow paths";
  EXPECT_NEAR(added(1e7, 4e9), narrow / 2, 0.1 * narrow) << "half of its bytes take a slow path";
}

TEST(PlannedSync, ComparesWithBytesOfTrainedParameters) {
  plan::Plan plan = plan_of(2, 2, "allreduce");
  plan.model_config = kWide;
  const net::ProcessName last{1, 0};
  const auto values = [&](const models::ModelDescription& model) {
    const sync::Layout layout = stages::stage_layout(model, plan.process(last).chunks);
    return static_cast<std::uint64_t>(layout.size());
  };
  EXPECT_EQ(bfloat16_sync_bytes(plan, last), 2 * values(wide()));  // half there, and half back
  plan.recipe.model.lora.emplace();
  const std::uint64_t adapters = values(models::describe(planned_model(plan)));
  EXPECT_LT(5 * adapters, values(wide()));
  EXPECT_EQ(bfloat16_sync_bytes(plan, last), 2 * adapters);
  for (plan::Plan::Process& process : plan.processes) process.group = 0;
  EXPECT_EQ(bfloat16_sync_bytes(plan, last), 0U) << "they sum in shared memory";
  plan.recipe.pipeline.replicas = 1;
  EXPECT_EQ(bfloat16_sync_bytes(plan, last), 0U);
}

TEST(PlannedSync, ComparesWithBytesThatLeadersOfGroupsWouldSend) {
  plan::Plan plan = plan_of(1, 4, "allreduce");
  plan.model_config = kWide;
  const auto values =
      static_cast<std::uint64_t>(stages::stage_layout(wide(), plan.process({0, 0}).chunks).size());
  for (plan::Plan::Process& process : plan.processes) process.group = process.name.replica / 2 * 2;
  EXPECT_EQ(bfloat16_sync_bytes(plan, {0, 0}), 2 * values);
  EXPECT_EQ(bfloat16_sync_bytes(plan, {0, 1}), 0U);
  EXPECT_EQ(bfloat16_sync_bytes(plan, {0, 2}), 2 * values);
}

TEST(PlannedSync, LongerLatencyNeverMakesMethodFaster) {
  std::map<std::string, double> before;
  for (double way = 1e-4; way < 100; way *= 1.5) {
    for (const plan::Plan::SyncOffer& offer : planned_apart(way, automatic()).sync_offers) {
      EXPECT_GE(offer.slowdown, before[offer.name()]) << offer.name() << " at " << way << " s";
      before[offer.name()] = offer.slowdown;
    }
  }
}

// What all wait for is no reason against any of them.
TEST(PlannedSync, AutoHidesLatencyOnLongPaths) {
  EXPECT_EQ(planned_apart(0, automatic()).sync_method, "allreduce");
  EXPECT_EQ(planned_apart(0.01, automatic()).sync_method, "allreduce");
  EXPECT_EQ(planned_apart(0.2, automatic()).sync_method, "cocktail");
  const plan::Plan far = planned_apart(2, automatic());
  EXPECT_NE(far.sync_method, "allreduce");
  EXPECT_LT(taken(far).slowdown, 1.05 * consensus_slowdown(far));
  EXPECT_EQ(consensus_slowdown(far), 3);
}

TEST(PlannedSync, AutoKeepsStatedStrength) {
  recipe::Recipe::Sync sync = automatic();
  sync.bits = 3;
  for (const double megabits : {0.5, 2.0, 8.0}) {
    for (const plan::Plan::SyncOffer& offer : planned_on(megabits, sync).sync_offers) {
      if (offer.strength) {
        EXPECT_EQ(offer.strength->bits, 3);
      }
    }
  }
  sync.random = 0.3;
  sync.top = 0.7;
  const plan::Plan plan = planned_on(2, sync);
  EXPECT_EQ(std::ranges::count(plan.sync_offers, "cocktail", &plan::Plan::SyncOffer::method), 1);
  EXPECT_THAT(names_of(plan.sync_offers), testing::Contains("cocktail 0.3/0.7/3"));
}

// What is said of a strength is said of cocktail. Bits that streaming_diloco would not take are
// none of its business; its links are planned as it was offered.
TEST(PlannedSync, DropsStrengthIfAutoChoosesAnotherMethod) {
  std::set<std::string> seen;
  for (const std::int64_t bits : {1, 8}) {
    recipe::Recipe::Sync sync = automatic();
    sync.bits = bits;
    sync.random = 0.5;
    for (double megabits = 1e-3; megabits < 10; megabits *= 2) {
      const plan::Plan plan = planned_on(megabits, sync);
      SCOPED_TRACE(fmt::format("{} bits, {} Mbit/s: {}", bits, megabits, plan.sync_method));
      seen.insert(plan.sync_method);
      // Each link carries what is sent to one of the three others.
      EXPECT_NEAR(static_cast<double>(3 * plan.links.at(0).forward_bytes),
                  static_cast<double>(taken(plan).step_bytes), 3);
      const recipe::Recipe resolved = resolved_recipe(plan);
      EXPECT_EQ(resolved.sync.bits.has_value(), plan.sync_method == "cocktail");
      EXPECT_EQ(resolved.sync.random.has_value(), plan.sync_method == "cocktail");
    }
  }
  EXPECT_THAT(seen, testing::Contains("streaming_diloco"));
  EXPECT_THAT(seen, testing::Contains("cocktail"));
}

// Where an outer step makes up for lateness, what sends more and loses more is no choice.
TEST(PlannedSync, AutoOffersHigherStrengthsForLongRuns) {
  for (const double megabits : {0.5, 2.0, 8.0}) {
    const plan::Plan plan = planned_on(megabits, automatic(), 20'000);
    EXPECT_THAT(names_of(plan.sync_offers), testing::Contains("cocktail 0.5/0.5/4"));
    EXPECT_THAT(names_of(plan.sync_offers), testing::Contains("cocktail 0.12/1/1"));
    EXPECT_THAT(names_of(plan.sync_offers), testing::Not(testing::Contains("cocktail 0.25/1/1")));
  }
}

TEST(PlannedSync, StoresChoiceOfAutoInPlanAndStageSettings) {
  plan::Plan plan = planned_on(2, automatic());
  plan.recipe.model.path = "model";  // without which it is none that can be read
  plan.recipe.data.train = {{"text"}};
  plan.recipe.train.steps = plan.steps;
  ASSERT_EQ(plan.sync_method, "cocktail");
  ASSERT_TRUE(plan.sync_strength);
  const plan::Plan read = plan::plan_from_json(to_json(plan));
  EXPECT_EQ(read.sync_strength, plan.sync_strength);
  EXPECT_EQ(read.sync_offers.size(), plan.sync_offers.size());
  const recipe::Recipe resolved = resolved_recipe(read);
  EXPECT_EQ(strength_of(sync_settings(resolved, "cocktail", plan.steps)), plan.sync_strength);
  EXPECT_EQ(resolved.sync.method, "cocktail");
  EXPECT_EQ(plan.recipe.sync, automatic());
}

TEST(PlannedSync, ResumedRunKeepsChoiceOfAuto) {
  const plan::Plan slow = planned_on(2, automatic());
  const auto on_a_fast_link = [&](std::uint32_t replicas, const recipe::Recipe::Sync& sync) {
    plan::Plan plan = plan_of(1, replicas);
    plan.recipe.sync = sync;
    plan.recipe.hosts.link_megabits = 1e4;
    plan_sync(plan, wide(), &slow);
    return plan;
  };
  EXPECT_EQ(on_a_fast_link(4, automatic()).sync_strength, slow.sync_strength);
  EXPECT_EQ(on_a_fast_link(4, automatic()).sync_method, slow.sync_method);
  EXPECT_EQ(on_a_fast_link(2, automatic()).sync_method, "allreduce");
  recipe::Recipe::Sync other = automatic();
  other.bits = 3;
  EXPECT_EQ(on_a_fast_link(4, other).sync_method, "allreduce");
}

TEST(PlannedSync, AutoTakesFastestIfNothingIsHidden) {
  const auto chosen_of = [](double allreduce, double cocktail, double diloco) {
    return choose_sync({{"allreduce", 0, 0, 0, 0, 0, allreduce},
                        {"cocktail", 0, 0, 0, 0, 0, cocktail},
                        {"diloco", 0, 0, 0, 0, 0, diloco}})
        .method;
  };
  EXPECT_EQ(chosen_of(9, 5, 4), "diloco");
  EXPECT_EQ(chosen_of(9, 1.04, 1), "cocktail");
  EXPECT_EQ(chosen_of(1.04, 1, 1), "allreduce");
}

// In a process of its own, because an offer cannot be removed.
TEST(PlannedSync, AutoComparesMethodsOfPluginsByTheirRank) {
  const auto check = [] {
    sync::MethodOffer offer = sync::methods().named("allreduce");
    offer.name = "better";
    offer.rank = 5;
    sync::methods().add(offer);
    offer.name = "unranked";
    offer.rank = sync::MethodOffer().rank;
    sync::methods().add(offer);
    const auto chosen_of = [](double better, double noloco, double unranked) {
      return choose_sync({{"allreduce", 0, 0, 0, 0, 0, 9},
                          {"noloco", 0, 0, 0, 0, 0, noloco},
                          {"unranked", 0, 0, 0, 0, 0, unranked},
                          {"better", 0, 0, 0, 0, 0, better}})
          .method;
    };
    const bool right = chosen_of(1, 1, 1) == "better" && chosen_of(9, 1, 1) == "noloco" &&
                       chosen_of(9, 9, 1) == "unranked";
    std::_Exit(right ? 0 : 1);
  };
  EXPECT_EXIT(check(), testing::ExitedWithCode(0), "");
}

TEST(PlannedSync, RefusesContradictingSettings) {
  plan::Plan plan = plan_of(1, 2, "streaming_diloco");
  plan.recipe.sync.every = 4;
  plan.recipe.sync.late = 3;
  EXPECT_THAT(base::user_error(base::ExitCode::bad_input,
                               [&] { plan_sync(plan, models::describe(config(true))); }),
              testing::StartsWith("sync.late is 3 "));
}

TEST(PlannedSync, AssignsEveryEvaluationBatchOnce) {
  for (const std::int64_t micro_batches : {0, 1, 2, 5, 9}) {
    for (const std::uint32_t replicas : {1U, 2U, 3U, 4U}) {
      plan::Plan plan = plan_of(1, replicas);
      plan.eval_micro_batches = micro_batches;
      std::size_t all = 0;
      for (const plan::Plan::Process& process : plan.processes) {
        all += plan.evaluation_actions(process.name).size();
      }
      EXPECT_EQ(all, static_cast<std::size_t>(micro_batches));
    }
  }
}

TEST(PlannedSync, DividesEvaluationsAsTheRowsOfAStep) {
  plan::Plan plan = plan_of(1, 2);
  plan.replica_rows = {6, 2};
  plan.eval_micro_batches = 8;
  EXPECT_EQ(plan.evaluation_actions({0, 0}).size(), 6U);
  EXPECT_EQ(plan.evaluation_actions({0, 1}).size(), 2U);
  EXPECT_EQ(plan.evaluation_actions({0, 0}, 1, 0).size(), 8U) << "the other one is lost";
}

}  // namespace
}  // namespace strait::planner

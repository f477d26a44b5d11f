#include "launcher/planner/planned_boundary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/codec/message.h"
#include "launcher/base/errors.h"
#include "launcher/planner/planned_frozen_rows.h"
#include "launcher/planner/planned_model.h"
#include "models/model_config.h"
#include "tests/launcher/user_error.h"

namespace strait::planner {
namespace {

constexpr std::int64_t kRows = 10;
constexpr std::int64_t kTokens = 16;
constexpr std::int64_t kEntry = kTokens * 8 * 2;  // bfloat16, width 8

data::TokenFile ten_rows() {
  data::TokenRows rows;
  rows.row_length = kTokens;
  rows.input_ids.assign(kRows * kTokens, 1);
  rows.loss_mask.assign(kRows * kTokens, 1);
  rows.document.assign(kRows * kTokens, 0);
  // Half of each row is another document, and a quarter of the last row is padding.
  for (std::int64_t i = 0; i < kRows * kTokens; ++i) {
    if (i % kTokens >= kTokens / 2) rows.document[static_cast<std::size_t>(i)] = 1;
    if (i >= kRows * kTokens - kTokens / 4) rows.document[static_cast<std::size_t>(i)] = -1;
  }
  return {rows, "ten rows"};
}

std::vector<PlannedBoundary> planned(const recipe::Recipe::Codec& codec, std::int64_t stages,
                                     int chunks = 1, bool samples_return = true,
                                     std::int64_t rows = 2, std::int64_t slices = 1) {
  const models::ModelConfig config = models::parse_config(
      R"({"model_type": "gpt2", "n_layer": 4, "n_embd": 8, "n_head": 2})", "config.json");
  recipe::Recipe recipe;
  recipe.codec = codec;
  recipe.data.row = kTokens;
  recipe.train.micro_batch = rows;
  recipe.pipeline.stages = stages;
  recipe.pipeline.slices = slices;
  std::vector<models::LayerRange> ranges;
  const auto places = static_cast<int>(stages) * chunks;
  for (int p = 0; p < places; ++p) ranges.push_back({p, p == places - 1 ? 5 : p});
  return plan_boundaries(recipe, models::describe(config), ranges, ten_rows(), samples_return);
}

recipe::Recipe::Codec delta(std::int64_t cache, std::int64_t disk) {
  recipe::Recipe::Codec codec;
  codec.forward = "delta";
  codec.cache = cache;
  codec.cache_disk = disk;
  return codec;
}

// Two stages; adapters in the upper two of four blocks, so that layers 0 to 2 are frozen.
plan::Plan with_frozen_layers() {
  plan::Plan plan;
  plan.model_config =
      R"({"model_type": "gpt2", "n_layer": 4, "n_embd": 8, "n_head": 2, "resid_pdrop": 0,
          "embd_pdrop": 0, "attn_pdrop": 0})";
  plan.recipe.data.row = kTokens;
  plan.recipe.train.micro_batch = 2;
  plan.recipe.pipeline.stages = 2;
  plan.recipe.model.lora.emplace().layers = {2, 3};
  plan.train.rows = kRows;
  plan.epoch_steps = 5;
  plan.steps = 6;
  plan.micro_batches = 1;
  plan.hosts.emplace_back();
  return plan;
}

codec::CacheLimits frozen_rows_of(const plan::Plan& plan, std::int64_t threads = 1) {
  const models::ModelDescription model = models::describe(planned_model(plan));
  return frozen_rows(plan, model, {{0, 1}, {0, 0}, threads});
}

TEST(FrozenRows, AreKeptWhereEveryVisitHasTheSameBitsAndAllFit) {
  const plan::Plan kept = with_frozen_layers();
  EXPECT_EQ(frozen_rows_of(kept).entry_bytes, kTokens * 8 * 4);
  EXPECT_EQ(frozen_rows_of(kept).rows, kRows);
  EXPECT_EQ(frozen_rows_of(kept).used_memory(), kRows * kTokens * 8 * 4);
  EXPECT_EQ(frozen_rows_of(kept, 3).entry_bytes, 0) << "a thread has few rows of a product";
  const std::vector<std::pair<const char*, std::function<void(plan::Plan&)>>> not_kept = {
      {"one epoch", [](auto& plan) { plan.steps = plan.epoch_steps; }},
      {"noise on embeddings", [](auto& plan) { plan.recipe.train.neftune = 5; }},
      {"slices", [](auto& plan) { plan.slices = 2; }},
      {"all trained", [](auto& plan) { plan.recipe.model.lora.reset(); }},
      {"only the embedding frozen",
       [](auto& plan) {
         plan.recipe.model.lora->layers = {0, 3};
       }},
      {"dropout",
       [](auto& plan) {
         plan.model_config = R"({"model_type": "gpt2", "n_layer": 4,
          "n_embd": 8, "n_head": 2, "resid_pdrop": 0.1, "embd_pdrop": 0, "attn_pdrop": 0})";
       }},
      {"rounding drawn anew", [](auto& plan) { plan.recipe.codec.forward = "fixed"; }},
      {"a codec with a state", [](auto& plan) { plan.recipe.codec.forward = "delta"; }},
      {"cached gradients", [](auto& plan) { plan.recipe.codec.backward = "delta"; }},
      {"no room for all",
       [](auto& plan) {
         plan.recipe.codec.cache = (kRows - 1) * kTokens * 8 * 4;
         plan.recipe.codec.cache_disk = 0;
       }},
      {"GPUs", [](auto& plan) { plan.recipe.model.device = recipe::Device::cuda; }}};
  for (const auto& [what, change] : not_kept) {
    plan::Plan plan = with_frozen_layers();
    change(plan);
    EXPECT_EQ(frozen_rows_of(plan).entry_bytes, 0) << what;
  }
  plan::Plan on_disk = with_frozen_layers();
  on_disk.recipe.codec.cache = 3 * kTokens * 8 * 4;
  EXPECT_EQ(frozen_rows_of(on_disk).rows, kRows);
  EXPECT_EQ(frozen_rows_of(on_disk).used_memory(), 3 * kTokens * 8 * 4);
}

TEST(FrozenRows, LeaveNothingToComputeOrSendBelowThem) {
  const plan::Plan plan = with_frozen_layers();
  const models::ModelDescription model = models::describe(planned_model(plan));
  const codec::CacheLimits frozen = frozen_rows_of(plan);
  EXPECT_EQ(model.first_trained_layer(), 3);
  const models::LayerRange later = later_layers({1, 4}, model, frozen);
  EXPECT_EQ(std::pair(later.first, later.last), std::pair(3, 4));
  EXPECT_GT(later_layers({0, 2}, model, frozen).first, 2) << "none";
  EXPECT_EQ(later_layers({0, 2}, model, {}).first, 0);
  EXPECT_EQ(frozen_row_bytes({{0, 2}}, model, frozen), 0);
  EXPECT_EQ(frozen_row_bytes({{3, 5}}, model, frozen), frozen.used_memory());
  auto boundaries = planned(recipe::Recipe::Codec(), 5);
  empty_frozen_boundaries({{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 5}}, model, boundaries);
  for (std::size_t i = 0; i < boundaries.size(); ++i) {
    EXPECT_EQ(boundaries[i].forward_bytes() > 0, i == 3) << i;
    EXPECT_GT(boundaries[i].bytes.first_forward, 0);
  }
}

// A checkpoint says by the plan which caches it has: where stages make none, there is none in it.
TEST(PlannedBoundary, HasNoCacheOfAutoWhereSamplesDoNotReturn) {
  recipe::Recipe::Codec codec = delta(1 << 20, 0);
  EXPECT_GT(planned(codec, 2, 1, false).at(0).cache.entry_bytes, 0);
  codec.forward = "auto";
  EXPECT_GT(planned(codec, 2, 1, true).at(0).cache.entry_bytes, 0);
  EXPECT_EQ(planned(codec, 2, 1, false).at(0).cache.entry_bytes, 0);
}

TEST(PlannedBoundary, RefusesMicroBatchesThatAreNoMessage) {
  const std::int64_t most = (std::int64_t{4} << 30) / (kTokens * 8 * 4 + 100);
  EXPECT_NO_THROW(planned(recipe::Recipe::Codec(), 2, 1, true, most));
  EXPECT_THAT(base::user_error(base::ExitCode::bad_input,
                               [&] { planned(recipe::Recipe::Codec(), 2, 1, true, 2 * most); }),
              testing::HasSubstr("set train.micro_batch to less"));
}

TEST(PlannedBoundary, CountsTokensWithoutPadding) {
  const auto boundaries = planned(recipe::Recipe::Codec(), 2);
  ASSERT_EQ(boundaries.size(), 1U);
  EXPECT_EQ(boundaries[0].load.width, 8);
  EXPECT_EQ(boundaries[0].load.rows, 2);
  EXPECT_NEAR(boundaries[0].load.tokens_per_row, 15.6, 1e-9);
  EXPECT_NEAR(boundaries[0].load.documents_per_row, 2, 1e-9);
  EXPECT_EQ(boundaries[0].cache.entry_bytes, 0);
  EXPECT_EQ(boundaries[0].cache.used_memory(), 0);
}

TEST(PlannedBoundary, SendsAndCachesSlicesOfRowsByThemselves) {
  const PlannedBoundary four = planned(delta(100 * kEntry, 0), 2, 1, true, 2, 4)[0];
  EXPECT_EQ(four.cache.entry_bytes, kEntry / 4);
  EXPECT_EQ(four.cache.rows, 4 * kRows);
  EXPECT_EQ(four.cache.used_memory(), kRows * kEntry);
  EXPECT_EQ(planned(delta(kEntry, 0), 2, 1, true, 2, 4)[0].cache.rows, 4);
  // Of two rows of two documents: three more messages, and in each row three more documents.
  const recipe::Recipe::Codec raw;
  const double whole = planned(raw, 2)[0].bytes.backward;
  const double headers = 4 * codec::header_bytes(2.0, 2 * 5.0 / 4) - codec::header_bytes(2.0, 4.0);
  EXPECT_NEAR(planned(raw, 2, 1, true, 2, 4)[0].bytes.backward, whole + headers, 1e-6);
}

TEST(PlannedBoundary, LimitsCacheToSmallerEnd) {
  // Inner stages share their memory between two boundaries, so the outer boundaries get no more.
  const auto two = planned(delta(8 * kEntry, 0), 2);
  EXPECT_EQ(two[0].cache.memory_bytes, 8 * kEntry);
  EXPECT_EQ(two[0].cache.rows, 8);
  const auto four = planned(delta(8 * kEntry, 2 * kEntry), 4);
  ASSERT_EQ(four.size(), 3U);
  for (const PlannedBoundary& boundary : four) {
    EXPECT_EQ(boundary.cache.memory_bytes, 4 * kEntry);
    EXPECT_EQ(boundary.cache.disk_bytes, kEntry);
    EXPECT_EQ(boundary.cache.rows, 5);
    EXPECT_EQ(boundary.cache.used_memory(), 4 * kEntry);
  }
  EXPECT_EQ(cache_bytes_of(four, 0, 4), 4 * kEntry);
  EXPECT_EQ(cache_bytes_of(four, 1, 4), 8 * kEntry);
  EXPECT_EQ(cache_bytes_of(four, 3, 4), 4 * kEntry);
}

TEST(PlannedBoundary, DirectionsShareMemoryOfStage) {
  recipe::Recipe::Codec codec = delta(8 * kEntry, 4 * kEntry);
  const double as_raw = planned(codec, 2)[0].bytes.backward;
  codec.backward = "delta";
  codec.backward_bits = 2;
  const PlannedBoundary both = planned(codec, 2)[0];
  EXPECT_EQ(both.cache.memory_bytes, 4 * kEntry);
  EXPECT_EQ(both.cache.rows, 6);
  EXPECT_EQ(both.cached_directions, 2);
  EXPECT_EQ(cache_bytes_of({both}, 0, 2), 8 * kEntry);
  EXPECT_NEAR(both.hits, 0.6, 1e-9);
  EXPECT_LT(both.bytes.backward, as_raw);
  // Of gradients alone: nothing is said of activations.
  codec.forward = "fixed";
  const PlannedBoundary gradients = planned(codec, 2)[0];
  EXPECT_EQ(gradients.cached_directions, 1);
  EXPECT_EQ(gradients.cache.memory_bytes, 8 * kEntry);
  EXPECT_EQ(gradients.hits, 0);
  EXPECT_EQ(gradients.forward_bytes(), gradients.bytes.first_forward);
}

TEST(PlannedBoundary, ChunksShareMemoryOfStage) {
  // Stage 0 is an end of all three: down to stage 1, around from there, and down again.
  const auto two = planned(delta(9 * kEntry, 0), 2, 2);
  ASSERT_EQ(two.size(), 3U);
  for (const PlannedBoundary& boundary : two) EXPECT_EQ(boundary.cache.memory_bytes, 3 * kEntry);
  EXPECT_EQ(cache_bytes_of(two, 0, 2), 9 * kEntry);
  EXPECT_EQ(cache_bytes_of(two, 1, 2), 9 * kEntry);
  EXPECT_TRUE(planned(delta(9 * kEntry, 0), 1, 3).empty()) << "nothing leaves a stage alone";
}

TEST(PlannedBoundary, SendsCachedSamplesAsDeltas) {
  const PlannedBoundary all = planned(delta(100 * kEntry, 0), 2)[0];
  EXPECT_EQ(all.cache.rows, kRows);
  EXPECT_EQ(all.cache.used_memory(), kRows * kEntry);
  EXPECT_EQ(all.forward_bytes(), all.bytes.known_forward);
  const PlannedBoundary none = planned(delta(kEntry / 2, 0), 2)[0];
  EXPECT_EQ(none.cache.rows, 0);
  EXPECT_EQ(none.forward_bytes(), none.bytes.first_forward);
  const PlannedBoundary some = planned(delta(3 * kEntry, 0), 2)[0];
  EXPECT_LT(some.forward_bytes(), some.bytes.first_forward);
  EXPECT_GT(some.forward_bytes(), some.bytes.known_forward);
}

}  // namespace
}  // namespace strait::planner

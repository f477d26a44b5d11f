#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stages/batch_source.h"
#include "tests/stages/compare_runs.h"

// Rows that are trained slice by slice: the losses of whole rows, and the same bits over every
// partition, schedule, depth and resume.
namespace strait::stages::slices_test {
namespace {

RunSettings sliced(int slices) {
  RunSettings settings;
  settings.slices = slices;
  return settings;
}

std::shared_ptr<const models::Lora> adapters() {
  models::Lora lora;
  lora.targets = {"q_proj", "v_proj"};
  return std::make_shared<const models::Lora>(lora);
}

void expect_near(const RunResult& whole, const RunResult& slices, const std::string& what) {
  ASSERT_TRUE(slices.errors.empty()) << what << ": " << slices.errors.front();
  ASSERT_EQ(whole.losses.size(), slices.losses.size()) << what;
  ASSERT_LT(whole.losses.back(), whole.losses.front()) << what << ": nothing was learnt";
  for (std::size_t i = 0; i < whole.losses.size(); ++i) {
    EXPECT_NEAR(slices.losses[i] / whole.losses[i], 1, 1e-4) << what << " in step " << i;
    EXPECT_NEAR(slices.norms[i] / whole.norms[i], 1, 1e-3) << what << " in step " << i;
  }
  EXPECT_EQ(whole.tokens, slices.tokens) << what;
  ASSERT_EQ(whole.evaluations.size(), slices.evaluations.size()) << what;
  for (std::size_t i = 0; i < whole.evaluations.size(); ++i) {
    EXPECT_NEAR(slices.evaluations[i] / whole.evaluations[i], 1, 1e-4) << what;
  }
}

TEST(Slices, LearnWhatWholeRowsLearn) {
  for (const bool llama : {false, true}) {
    RunSettings settings;
    settings.llama = llama;
    settings.dropout = 0;
    settings.evaluate = true;
    const RunResult whole = run_stages(settings);
    for (const int slices : {2, 4, 16}) {
      settings.slices = slices;
      settings.recompute = slices == 4;
      expect_near(whole, run_stages(settings),
                  (llama ? "llama in " : "gpt2 in ") + std::to_string(slices) + " slices");
    }
  }
}

TEST(Slices, OfAdaptersLearnWhatWholeRowsLearn) {
  RunSettings settings;
  settings.llama = true;
  settings.lora = adapters();
  settings.learning_rate = 0.05;
  const RunResult whole = run_stages(settings);
  settings.slices = 4;
  for (const bool recompute : {false, true}) {
    settings.recompute = recompute;
    expect_near(whole, run_stages(settings), recompute ? "recomputed" : "kept");
  }
}

TEST(Slices, HaveTheSameBitsOverEveryPartition) {
  for (const bool tied : {true, false}) {
    RunSettings one = sliced(tied ? 4 : 2);
    one.tied = tied;
    one.evaluate = true;
    const RunResult whole = run_stages(one);
    struct Case {
      std::vector<std::pair<int, int>> blocks;
      std::string schedule;
      int depth = 0;
      int chunks = 1;
      bool recompute = false;
    };
    for (const Case& split : {Case{{{0, 1}, {2, 3}}, "gpipe"},
                              {{{0, 0}, {1, 3}}, "1f1b", 1, 1, true},
                              {{{0, 1}, {2, 2}, {3, 3}}, "zero_bubble"},
                              {{{0, 0}, {1, 1}, {2, 2}, {3, 3}}, "interleaved", 0, 2}}) {
      RunSettings settings = one;
      settings.blocks = split.blocks;
      settings.schedule = split.schedule;
      settings.depth = split.depth;
      settings.chunks = split.chunks;
      settings.recompute = split.recompute;
      expect_same_run(whole, run_stages(settings), split.schedule + (tied ? " tied" : " untied"));
    }
  }
}

TEST(Slices, OfReplicasHaveTheSameBits) {
  RunSettings plain = sliced(2);
  plain.tied = false;
  plain.replicas = 2;
  plain.sync.method = "allreduce";
  RunSettings split = plain;
  split.blocks = {{0, 1}, {2, 3}};
  split.schedule = "zero_bubble";
  expect_same_run(run_stages(plain), run_stages(split), "two stages of two replicas");
}

// A slice of a row has a cache entry of its own.
TEST(Slices, GoOnFromCheckpointsWithTheirCaches) {
  for (const std::string codec : {"delta", "transform"}) {
    RunSettings settings = sliced(4);
    settings.steps = 14;  // more than two epochs
    settings.blocks = {{0, 1}, {2, 3}};
    settings.boundary.codec.forward = codec;
    settings.boundary.codec.forward_bits = 6;
    settings.boundary.codec.backward = codec == "delta" ? "fixed" : codec;
    settings.boundary.codec.backward_bits = 6;
    settings.boundary.cache.memory_bytes = 1 << 20;
    const RunResult whole = run_stages(settings);
    EXPECT_GT(sum_of(whole, BoundaryTraffic::Direction::forward, true).hits, 0U) << codec;
    RunSettings until = settings;
    until.stop_at = 8;
    const RunResult stopped = run_stages(until);
    ASSERT_TRUE(stopped.errors.empty()) << codec << ": " << stopped.errors.front();
    const RunResult resumed = run_stages(settings, stopped.saved, stopped.steps, stopped.caches);
    expect_same_run(whole, joined(stopped, resumed), codec);
    settings.depth = 2;
    expect_same_run(whole, run_stages(settings), codec + " at another depth");
  }
}

// Two rows of twelve tokens: three documents, the second of which ends with the first slice; and
// one with padding.
TEST(BatchSourceSlices, HaveEveryTokenOnceAndSayWhichDocumentGoesOn) {
  data::TokenRows rows;
  rows.row_length = 12;
  const std::vector<std::vector<std::int64_t>> documents = {{1, 3, 8}, {7}};
  for (const auto& lengths : documents) {
    std::int32_t number = 0;
    for (const std::int64_t length : lengths) {
      for (std::int64_t i = 0; i < length; ++i) rows.document.push_back(number);
      ++number;
    }
    rows.document.resize((rows.document.size() + 11) / 12 * 12, -1);
  }
  for (std::int32_t i = 0; i < 24; ++i) rows.input_ids.push_back(rows.document[i] < 0 ? 0 : i + 1);
  rows.loss_mask.resize(24, 0);
  const auto file = std::make_shared<const data::TokenFile>(std::move(rows), "two rows");
  BatchOptions options;
  options.micro_batch_rows = 2;
  options.shuffle = false;
  options.slices = 3;
  const BatchSource source(file, file, options);
  const Phase phase{store::Step{0}, true};
  using testing::ElementsAre;
  std::vector<std::vector<std::int64_t>> parts;
  for (int slice = 0; slice < 3; ++slice) {
    const codec::Rows part = source.rows(phase, MicroBatch{slice});
    ASSERT_EQ(part.size(), 2);
    EXPECT_EQ(part.padded_length, 4);
    for (const codec::Row& row : part.rows) {
      parts.push_back(row.documents);
      EXPECT_EQ(number(row.sample) % 3, slice);
      EXPECT_EQ(source.part_of(phase, row).begin, 4 * slice);
    }
  }
  EXPECT_THAT(parts, ElementsAre(ElementsAre(1, 3), ElementsAre(4), ElementsAre(0, 4),
                                 ElementsAre(3), ElementsAre(4), ElementsAre(0)));
  EXPECT_THAT(source.padded_tokens(phase, MicroBatch{1}), ElementsAre(5, 6, 7, 8, 17, 18, 19, 0));
  EXPECT_EQ(source.rows({store::Step{0}, false}, MicroBatch{0}).padded_length, 12)
      << "evaluations have whole rows";
  EXPECT_THAT(in_slices({store::SampleId{5}, store::SampleId{2}}, options),
              ElementsAre(store::SampleId{15}, store::SampleId{6}, store::SampleId{16},
                          store::SampleId{7}, store::SampleId{17}, store::SampleId{8}));
}

}  // namespace
}  // namespace strait::stages::slices_test

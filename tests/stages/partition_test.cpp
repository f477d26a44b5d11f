#include "stages/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/refusal_of.h"

namespace strait::stages {
namespace {

using partition::Assignment;
using partition::Layers;
using partition::ModelDescription;
using partition::Question;
using testing::HasSubstr;

ModelDescription model_of(const std::vector<double>& costs) {
  ModelDescription model;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    partition::Layer layer;
    layer.name = i == 0                  ? "embedding"
                 : i + 1 == costs.size() ? "head"
                                         : "block " + std::to_string(i - 1);
    layer.forward_flops_per_token = costs[i];
    layer.parameters = 1000;
    layer.saved_bytes_per_token = 10;
    model.layers.push_back(layer);
  }
  return model;
}

// One host with a slot for every stage and no memory limit.
Question question_of(const ModelDescription& model, int stages) {
  Question question;
  question.model = model;
  question.stages = stages;
  question.cluster.hosts = {{.name = "a", .slots = stages}};
  question.in_flight.assign(static_cast<std::size_t>(stages), 2);
  return question;
}

Assignment balanced(const Question& question) {
  return partitions().named("balanced").cut(question);
}

double slowest(const ModelDescription& model, const Assignment& answer) {
  double worst = 0;
  for (const partition::Stage& stage : answer.stages) {
    double sum = 0;
    for (int i = stage.chunks.front().first; i <= stage.chunks.front().last; ++i) {
      sum += model.layers[static_cast<std::size_t>(i)].forward_flops_per_token;
    }
    worst = std::max(worst, sum);
  }
  return worst;
}

// All partitions of the blocks into stages, by brute force.
double best_possible(const ModelDescription& model, int blocks, int stages) {
  double best = 1e300;
  std::vector<int> mask(static_cast<std::size_t>(blocks - 1), 0);
  std::fill(mask.end() - (stages - 1), mask.end(), 1);
  do {
    std::vector<std::pair<int, int>> ranges;
    int first = 0;
    for (int i = 0; i < blocks - 1; ++i) {
      if (mask[static_cast<std::size_t>(i)] == 1) {
        ranges.emplace_back(first, i);
        first = i + 1;
      }
    }
    ranges.emplace_back(first, blocks - 1);
    best = std::min(best, slowest(model, explicit_partition(model, ranges)));
  } while (std::next_permutation(mask.begin(), mask.end()));
  return best;
}

TEST(Partition, BalancedEqualsBestOfAllCuts) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 60; ++i) {
    const int blocks = 2 + static_cast<int>(random() % 8);
    std::vector<double> costs;
    for (int b = 0; b < blocks + 2; ++b) costs.push_back(static_cast<double>(random() % 100));
    const ModelDescription model = model_of(costs);
    for (int stages = 1; stages <= blocks; ++stages) {
      const Question question = question_of(model, stages);
      const Assignment answer = check_assignment(question, balanced(question), "balanced");
      EXPECT_DOUBLE_EQ(slowest(model, answer), best_possible(model, blocks, stages))
          << "case " << i;
    }
  }
}

// As where a head of few operations takes long, or a backward more than twice its forward.
TEST(Partition, ProfileBalancesSecondsOfForwardAndBackward) {
  const std::vector<double> seconds = {0.5, 1, 1, 1, 1, 1, 1, 6};
  ModelDescription model = model_of({0, 1, 1, 1, 1, 1, 1, 1});
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    model.layers[i].forward_seconds = seconds[i] / 4;
    model.layers[i].backward_factor = 3;
  }
  const Question question = question_of(model, 2);
  const Assignment profile = partitions().named("profile").cut(question);
  EXPECT_EQ(profile.stages[0].chunks.front(), (Layers{0, 5})) << "5.5 and 7 seconds";
  EXPECT_EQ(balanced(question).stages[0].chunks.front(), (Layers{0, 4})) << "4 and 4 operations";
}

TEST(Partition, BalancedIsMostEvenOfCutsWithSameSlowestStage) {
  // A head as large as three blocks: five blocks set the pace, and the others share the rest.
  std::vector<double> costs(32, 1);
  costs.insert(costs.begin(), 0);
  costs.push_back(3);
  const ModelDescription model = model_of(costs);
  const Assignment answer = balanced(question_of(model, 8));
  EXPECT_EQ(slowest(model, answer), 5);
  for (const partition::Stage& stage : answer.stages) {
    double cost = 0;
    for (int i = stage.chunks.front().first; i <= stage.chunks.front().last; ++i) {
      cost += costs[static_cast<std::size_t>(i)];
    }
    EXPECT_GE(cost, 4) << "blocks up to " << stage.chunks.front().last;
  }
}

TEST(Partition, RefusesMoreStagesThanBlocks) {
  try {
    balanced(question_of(model_of({0, 1, 1, 0}), 3));
    FAIL() << "three stages were cut from two blocks";
  } catch (const PartitionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("pipeline.stages is 3"));
    EXPECT_THAT(error.what(), HasSubstr("2 transformer blocks"));
  }
}

TEST(Partition, BalancedAssignsRangesToChunksInTurn) {
  const ModelDescription model = model_of({0, 1, 1, 1, 1, 1, 1, 1, 1, 0});
  Question question = question_of(model, 2);
  question.chunks = 2;
  const Assignment answer = check_assignment(question, balanced(question), "balanced");
  EXPECT_EQ(answer.stages[0].chunks, (std::vector<Layers>{{0, 2}, {5, 6}}));
  EXPECT_EQ(answer.stages[1].chunks, (std::vector<Layers>{{3, 4}, {7, 9}}));
  question.chunks = 5;
  try {
    balanced(question);
    FAIL() << "ten chunks were cut from eight blocks";
  } catch (const PartitionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("pipeline.stages is 2 with 5 chunks each"));
    EXPECT_THAT(error.what(), HasSubstr("at most 8 chunks in all"));
  }
}

TEST(Partition, ExplicitRangesOfChunksAreInDataOrder) {
  const ModelDescription model = model_of({0, 1, 1, 1, 1, 0});
  const Assignment answer = explicit_partition(model, {{0, 0}, {1, 1}, {2, 2}, {3, 3}}, 2);
  EXPECT_EQ(answer.stages[0].chunks, (std::vector<Layers>{{0, 1}, {3, 3}}));
  EXPECT_EQ(answer.stages[1].chunks, (std::vector<Layers>{{2, 2}, {4, 5}}));
  try {
    explicit_partition(model, {{0, 0}, {1, 1}, {3, 3}, {3, 3}}, 2);
    FAIL() << "a gap was accepted";
  } catch (const PartitionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("stage 0 chunk 1 has blocks [3, 3]"));
  }
}

TEST(Partition, ExplicitRangesIncludeEmbeddingAndLmHead) {
  const ModelDescription model = model_of({0, 1, 1, 1, 1, 0});
  const Assignment answer = explicit_partition(model, {{0, 0}, {1, 3}});
  EXPECT_EQ(answer.stages[0].chunks.front(), (Layers{0, 1}));
  EXPECT_EQ(answer.stages[1].chunks.front(), (Layers{2, 5}));
}

TEST(Partition, RefusesExplicitRangesWithGapsOrOverlaps) {
  const ModelDescription model = model_of({0, 1, 1, 1, 1, 0});
  using Blocks = std::vector<std::pair<int, int>>;
  for (const Blocks& wrong : {Blocks{{0, 1}, {3, 3}}, Blocks{{0, 2}, {2, 3}}, Blocks{{1, 3}},
                              Blocks{{0, 2}}, Blocks{{0, 4}}, Blocks{{0, 1}, {3, 2}}, Blocks{}}) {
    EXPECT_THROW(explicit_partition(model, wrong), PartitionError);
  }
}

// An assignment of six layers to two stages.
Assignment answer_of(const std::vector<std::vector<Layers>>& chunks) {
  Assignment answer;
  for (const auto& of_a_stage : chunks) answer.stages.push_back({of_a_stage, std::nullopt});
  return answer;
}

std::string refusal_for(const Question& question, const Assignment& answer) {
  return refusal_of<PartitionError>([&] { check_assignment(question, answer, "mine.so"); });
}

TEST(CheckAssignment, RefusesWrongPartitionAndNamesLayer) {
  const Question question = question_of(model_of({0, 1, 1, 1, 1, 0}), 2);
  const auto refusal = [&](const std::vector<std::vector<Layers>>& chunks) {
    return refusal_for(question, answer_of(chunks));
  };
  EXPECT_EQ(refusal({{{0, 2}}, {{3, 5}}}), "nothing was refused");
  EXPECT_EQ(refusal({{{0, 2}}, {{4, 5}}}), "mine.so gives layer 3 (block 2) to no stage");
  EXPECT_EQ(refusal({{{0, 2}}, {{3, 4}}}), "mine.so gives layer 5 (head) to no stage");
  EXPECT_EQ(refusal({{{0, 3}}, {{3, 5}}}),
            "mine.so gives layer 3 (block 2) twice, to stage 0 and to stage 1");
  EXPECT_THAT(refusal({{{3, 5}}, {{0, 2}}}), HasSubstr("is out of order: stage 1 begins with"));
  EXPECT_THAT(refusal({{}, {{0, 5}}}), HasSubstr("leaves stage 0 empty"));
  EXPECT_THAT(refusal({{{0, 2}}, {{3, 6}}}), HasSubstr("gives stage 1 the layers 3 to 6"));
  EXPECT_THAT(refusal({{{0, 2}}, {{4, 3}}}), HasSubstr("gives stage 1 the layers 4 to 3"));
  EXPECT_THAT(refusal({{{-1, 2}}, {{3, 5}}}), HasSubstr("the model has layers 0 to 5"));
  EXPECT_THAT(refusal({{{0, 5}}}), HasSubstr("has 1 stages, but pipeline.stages is 2"));
  EXPECT_THAT(refusal({{{0, 1}, {4, 4}}, {{2, 3}, {5, 5}}}), HasSubstr("gives stage 0 2 chunks"));
  EXPECT_THAT(refusal({{{0, 1}, {2, 3}}, {{4, 5}}}), HasSubstr("is out of order"));
}

TEST(CheckAssignment, RefusesWrongNumberOfChunks) {
  Question question = question_of(model_of({0, 1, 1, 1, 1, 0}), 2);
  question.chunks = 2;
  const auto refusal = [&](const std::vector<std::vector<Layers>>& chunks) {
    return refusal_for(question, answer_of(chunks));
  };
  EXPECT_EQ(refusal({{{0, 1}, {4, 4}}, {{2, 3}, {5, 5}}}), "nothing was refused");
  EXPECT_EQ(refusal({{{0, 2}}, {{3, 5}}}),
            "mine.so gives stage 0 1 chunk, but pipeline.chunks is 2");
  EXPECT_THAT(refusal({{{0, 1}, {4, 5}}, {{2, 3}}}), HasSubstr("stage 1 1 chunk,"));
  EXPECT_THAT(refusal({{{0, 1}, {2, 3}}, {{4, 4}, {5, 5}}}), HasSubstr("is out of order"));
}

TEST(CheckAssignment, CountsHeldMicroBatchesInLargestChunk) {
  Question question = question_of(model_of({0, 1, 1, 1, 1, 0}), 2);
  question.chunks = 2;
  question.micro_batch_tokens = 8;
  question.in_flight = {5, 3};
  // Parameters of all chunks; 10 bytes per layer for each of 8 tokens.
  EXPECT_EQ(question.stage_bytes(0, {{0, 1}, {4, 4}}), 3 * 1000 * 16 + 5 * 2 * 10 * 8);
  EXPECT_EQ(question.stage_bytes(1, {{2, 3}, {5, 5}}), 3 * 1000 * 16 + 3 * 2 * 10 * 8);
}

TEST(CheckAssignment, CountsBothGradientsOfTiedTableInOneStage) {
  Question question = question_of(model_of({0, 1, 1, 0}), 1);
  const std::vector<Layers> all = {{0, 3}};
  const std::int64_t untied = question.stage_bytes(0, all);
  question.model.tied_parameters = 500;
  EXPECT_EQ(question.stage_bytes(0, all), untied + 4 * 500);
  question.model.tied_trained = false;
  EXPECT_EQ(question.stage_bytes(0, all), untied);
}

TEST(CheckAssignment, AssignsFreeSlotsInOrder) {
  Question question = question_of(model_of({0, 1, 1, 1, 1, 0}), 3);
  question.cluster.hosts = {{.name = "a", .slots = 1}, {.name = "b", .slots = 2}};
  Assignment answer = answer_of({{{0, 1}}, {{2, 3}}, {{4, 5}}});
  const Assignment checked = check_assignment(question, answer, "mine.so");
  EXPECT_EQ(checked.stages[0].host, 0U);
  EXPECT_EQ(checked.stages[1].host, 1U);
  EXPECT_EQ(checked.stages[2].host, 1U);
  answer.stages[0].host = 1;
  answer.stages[1].host = 1;
  EXPECT_EQ(check_assignment(question, answer, "mine.so").stages[2].host, 0U);
}

TEST(CheckAssignment, RefusesUnknownAndFullHosts) {
  Question question = question_of(model_of({0, 1, 1, 1, 1, 0}), 2);
  question.cluster.hosts = {{.name = "a", .slots = 1}, {.name = "b", .slots = 1}};
  Assignment answer = answer_of({{{0, 2}}, {{3, 5}}});
  answer.stages[0].host = 1;
  answer.stages[1].host = 1;
  EXPECT_EQ(refusal_for(question, answer),
            "mine.so puts stage 1 on b, which has no slot left for it (of 1)");
  answer.stages[1].host = 2;
  EXPECT_THAT(refusal_for(question, answer), HasSubstr("puts stage 1 on host 2"));
  question.cluster.hosts.pop_back();
  EXPECT_THAT(refusal_for(question, answer_of({{{0, 2}}, {{3, 5}}})),
              HasSubstr("needs more stages than the hosts have slots left"));
}

TEST(CheckAssignment, CountsMemoryOfAllStagesOfHostAndTiedWeightAtLmHead) {
  Question question = question_of(model_of({0, 1, 1, 1, 1, 0}), 2);
  question.micro_batch_tokens = 8;
  // Three layers: 1000 parameters of 16 bytes, and 10 bytes for each of 8 tokens, two at a time.
  const std::int64_t stage = 3 * (1000 * 16 + 10 * 8 * 2);
  const Assignment answer = answer_of({{{0, 2}}, {{3, 5}}});
  question.cluster.hosts.front().memory_bytes = 2 * stage;
  EXPECT_EQ(refusal_for(question, answer), "nothing was refused");
  question.cluster.hosts.front().memory_bytes = 2 * stage - 1;
  EXPECT_THAT(refusal_for(question, answer), HasSubstr("is over memory: with stage 1"));
  question.cluster.hosts = {{.name = "a", .memory_bytes = stage - 500 * 16},
                            {.name = "b", .memory_bytes = stage + 500 * 16}};
  question.model.tied_parameters = 500;
  EXPECT_EQ(refusal_for(question, answer), "nothing was refused");
  question.cluster.hosts.back().memory_bytes -= 1;
  EXPECT_THAT(refusal_for(question, answer), HasSubstr("b"));
}

// A model whose blocks cost the same, of which the last three are large.
Question on_gpus(int stages, std::vector<std::int64_t> gpu_bytes) {
  ModelDescription model = model_of({0, 1, 1, 1, 1, 1, 1, 0});
  for (partition::Layer& layer : model.layers) layer.saved_bytes_per_token = 0;
  for (int i : {4, 5, 6}) model.layers[static_cast<std::size_t>(i)].parameters = 3000;
  model.layers.front().parameters = model.layers.back().parameters = 0;
  Question question = question_of(model, stages);
  question.bytes_per_parameter = 1;
  question.cluster.hosts[0].gpu_bytes = std::move(gpu_bytes);
  question.cluster.hosts[0].memory_bytes = 1;  // stages are not in it
  return question;
}

std::vector<int> blocks_in(const Assignment& answer) {
  std::vector<int> ends;
  for (const partition::Stage& stage : answer.stages) ends.push_back(stage.chunks[0].last);
  return ends;
}

TEST(Partition, BalancedMovesLayersOffGpuThatIsTooSmall) {
  // Even: layers 0-3 with 3000 bytes, 4-7 with 9000.
  EXPECT_THAT(blocks_in(balanced(on_gpus(2, {10000, 10000}))), testing::ElementsAre(3, 7));
  const Question small = on_gpus(2, {10000, 6000});
  const Assignment answer = check_assignment(small, balanced(small), "balanced");
  EXPECT_THAT(blocks_in(answer), testing::ElementsAre(4, 7));
  // Stages 0 and 2 share the first GPU.
  const Question shared = on_gpus(3, {12000, 3000});
  EXPECT_THAT(blocks_in(check_assignment(shared, balanced(shared), "balanced")),
              testing::ElementsAre(3, 4, 7));
  EXPECT_THAT(blocks_in(balanced(on_gpus(2, {10000, 0}))), testing::ElementsAre(3, 7))
      << "a GPU of unknown size limits nothing";
}

// Each process needs some of its GPU in addition to its stage.
TEST(Partition, CountsWhatProcessesTakeOfTheirGpu) {
  Question question = on_gpus(3, {12200, 3100});  // two on the first
  question.cluster.hosts[0].gpu_process_bytes = 100;
  EXPECT_THAT(blocks_in(check_assignment(question, balanced(question), "balanced")),
              testing::ElementsAre(3, 4, 7));
  question.cluster.hosts[0].gpu_bytes = {12199, 3100};
  // Layers as before would not fit, and no others do.
  EXPECT_THROW(check_assignment(question, balanced(question), "balanced"), PartitionError);
}

TEST(Partition, NamesStageAndGpuThatIsTooSmall) {
  Question question = on_gpus(2, {5000, 5000});
  question.cluster.hosts[0].next_gpu = 1;  // an earlier replica has a stage here
  EXPECT_THAT([&] { check_assignment(question, balanced(question), "it"); },
              testing::ThrowsMessage<PartitionError>(
                  "it is over memory: with stage 1 (9e-06 GB) the stages on GPU 0 of a need 9e-06 "
                  "GB of its 5e-06 GB"));
}

}  // namespace
}  // namespace strait::stages

#include "launcher/planner/planned_layout.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "framework/codec/codecs.h"
#include "launcher/planner/plan_load.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/planner/plan_text.h"
#include "launcher/planner/planned_boundary.h"
#include "launcher/planner/planned_slices.h"
#include "launcher/planner/planned_sync.h"
#include "launcher/recipe/placement.h"
#include "launcher/recipe/plan.h"
#include "launcher/recipe/recipe_io.h"
#include "tests/launcher/user_error.h"
#include "tests/scratch_directory.h"

namespace strait::planner {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

// A model of 12 blocks, text, and the speeds between three hosts.
class PlannedLayout : public testing::Test {
 protected:
  PlannedLayout() {
    std::filesystem::create_directory(folder_ / "model");
    ScratchDirectory::write(folder_ / "model" / "config.json",
                            R"({"model_type": "gpt2", "vocab_size": 257, "n_positions": 64,
                                "n_embd": 256, "n_layer": 12, "n_head": 4})");
    std::string text;
    for (int line = 0; line < 200; ++line) text += "a line of sixty-four bytes or so\n";
    ScratchDirectory::write(folder_ / "text.txt", text);
    ScratchDirectory::write(folder_ / "links.csv",
                            "from,to,mbit_per_s,ms\n"
                            "a,b,300,5\na,c,300,5\nb,c,75,5\n");
  }

  // `hosts`: the value of hosts.list.
  recipe::Recipe recipe(const std::string& hosts, const std::string& pipeline,
                        const std::vector<std::string>& overrides = {}) const {
    return recipe::parse_recipe(
        fmt::format("model = {{path = \"{0}/model\", weights = \"random\", device = \"cpu\"}}\n"
                    "data = {{train = \"{0}/text.txt\", tokenizer = \"bytes\", row = 64}}\n"
                    "train = {{steps = 10, batch = 24, micro_batch = 1}}\n"
                    "pipeline = {{{1}}}\n"
                    "codec = {{{3}}}\n"
                    "hosts = {{backend = \"ssh\", list = {2}, links = \"{0}/links.csv\"}}\n",
                    folder_.path().string(), pipeline, hosts, codec_),
        "recipe.toml", overrides);
  }
  plan::Plan planned(const std::string& hosts, const std::string& pipeline,
                     const std::vector<std::string>& overrides = {}) const {
    return make_plan(recipe(hosts, pipeline, overrides)).plan;
  }
  // Hosts a and b, each with a GPU of this memory, and a link that is slow and far.
  plan::Plan planned_on_gpus(std::int64_t memory, const std::string& pipeline,
                             const std::vector<std::string>& more = {}) const {
    std::string speeds;
    for (const char* host : {"a", "b"}) {
      speeds += fmt::format(
          "[[hosts]]\nname = \"{}\"\nflops_per_second = 1e10\ngpu_memory = [{}]\n", host, memory);
    }
    speeds +=
        "[[links]]\nfrom = \"a\"\nto = \"b\"\nbits_per_second = 4e7\nseconds = 0.3\n"
        "[[links]]\nfrom = \"b\"\nto = \"a\"\nbits_per_second = 4e7\nseconds = 0.3\n";
    ScratchDirectory::write(folder_ / "gpus.toml", speeds);
    std::vector<std::string> overrides{"model.device=auto",
                                       "hosts.links=" + (folder_ / "gpus.toml").string()};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return planned(R"(["a", "b"])", pipeline, overrides);
  }

  ScratchDirectory folder_;
  std::string codec_ = R"(forward = "fixed", backward = "fixed")";
};

constexpr const char* kAutomatic = R"(stages = "auto", replicas = "auto")";
constexpr const char* kPipelineOnly = R"(stages = "auto", replicas = 1)";

std::string hosts_with(double a, double b, double c) {
  return fmt::format(
      "[{{name = \"a\", tflops = {}}}, {{name = \"b\", tflops = {}}}, "
      "{{name = \"c\", tflops = {}}}]",
      a, b, c);
}

double seconds_of(const plan::Plan& plan) {
  return plan.layouts.empty() ? plan.step_seconds : plan.layouts.front().step_seconds;
}

TEST_F(PlannedLayout, TakesSlicesOfFewLongRowsForAShorterStep) {
  ScratchDirectory::write(folder_ / "model" / "config.json",
                          R"({"model_type": "gpt2", "vocab_size": 257, "n_positions": 512,
                              "n_embd": 256, "n_layer": 12, "n_head": 4})");
  codec_ = R"(forward = "delta", backward = "fixed")";
  const auto plan_of = [&](const std::string& slices) {
    return planned(hosts_with(1, 1, 1), "stages = 3, slices = " + slices,
                   {"data.row=512", "train.batch=3"});
  };
  const plan::Plan whole = plan_of("1");
  const plan::Plan chosen = plan_of("\"auto\"");
  EXPECT_THAT(plan_text(whole), Not(HasSubstr("slices")));
  EXPECT_THAT(plan_text(chosen), HasSubstr(fmt::format(", {} slices of rows;", chosen.slices)));
  EXPECT_GT(chosen.slices, 1);
  EXPECT_LT(chosen.step_seconds, 0.9 * whole.step_seconds);
  const plan::Plan four = plan_of("4");
  EXPECT_EQ(four.slices, 4);
  EXPECT_EQ(4 * four.links[0].cache.entry_bytes, whole.links[0].cache.entry_bytes);
  EXPECT_EQ(four.links[0].cache.rows, 4 * whole.links[0].cache.rows);
  EXPECT_GT(four.processes[1].activation_bytes, whole.processes[1].activation_bytes)
      << "keys and values of earlier slices";
  EXPECT_EQ(plan_of("\"auto\"").hash(), chosen.hash());
}

TEST(Slices, AreRefusedForModelsThatTrainWholeRows) {
  recipe::Recipe recipe;
  recipe.pipeline.stages = 4;
  recipe.data.row = 512;
  models::ModelDescription model;
  EXPECT_THAT(possible_slices(recipe, model), testing::ElementsAre(1)) << "unless a family says so";
  model.trains_whole_rows.clear();
  EXPECT_THAT(possible_slices(recipe, model), testing::ElementsAre(1, 2, 4, 8));
  model.trains_whole_rows = "its blocks keep a state";
  EXPECT_THAT(possible_slices(recipe, model), testing::ElementsAre(1));
  EXPECT_NO_THROW(check_slices(recipe, model));
  recipe.pipeline.slices = 2;
  EXPECT_THROW(check_slices(recipe, model), base::UserError);
  EXPECT_EQ(best_slices({1, 2, 4}, [](auto slices) { return slices == 1 ? 2.0 : 1.0; }), 2);
}

TEST_F(PlannedLayout, GivesFastHostsMoreBlocksAndIsFasterThanTheListedOrder) {
  const std::string hosts = hosts_with(0.02, 0.005, 0.02);
  const plan::Plan chosen = planned(hosts, kPipelineOnly);
  EXPECT_LT(seconds_of(chosen), 0.7 * planned(hosts, "stages = 3").step_seconds);
  EXPECT_LT(seconds_of(chosen), planned(hosts, "stages = 1").step_seconds);
  ASSERT_FALSE(chosen.recipe.pipeline.choose_stages);
  // No stage of the slow host is as long as one of a fast host.
  std::size_t slow = 0;
  std::size_t fast = 100;
  for (const plan::Plan::Process& process : chosen.processes) {
    const auto blocks =
        static_cast<std::size_t>(process.chunks.front().last - process.chunks.front().first + 1);
    (process.host == "b" ? slow : fast) =
        process.host == "b" ? std::max(slow, blocks) : std::min(fast, blocks);
  }
  EXPECT_LT(slow, fast);
}

TEST_F(PlannedLayout, LeavesOutAHostThatWouldOnlyDelay) {
  const plan::Plan plan = planned(hosts_with(0.02, 0.02, 0.00001), kPipelineOnly);
  for (const plan::Plan::Process& process : plan.processes) EXPECT_NE(process.host, "c");
  EXPECT_THAT(plan_text(plan), HasSubstr("left out, because a step takes no longer without: c"));
}

TEST_F(PlannedLayout, StatedLayoutDoesNotSayWhatItsIdleHostsAreWorth) {
  const std::string text = plan_text(planned(hosts_with(0.02, 0.001, 0.02), "stages = 2"));
  EXPECT_THAT(text, AllOf(HasSubstr("not used: c"), Not(HasSubstr("left out, because"))));
}

// Compute takes a tenth of what the memory of these hosts takes for the update of all layers.
TEST_F(PlannedLayout, CountsTheUpdatesOfStages) {
  ScratchDirectory::write(folder_ / "links.csv",
                          "from,to,mbit_per_s,ms\na,b,10000,0\na,c,10000,0\nb,c,10000,0\n");
  const std::string hosts = hosts_with(100, 50, 25);
  const plan::Plan chosen = planned(hosts, kPipelineOnly);
  for (const char* stated : {"stages = 1", "stages = 2", "stages = 3"}) {
    EXPECT_LE(seconds_of(chosen), 1.03 * planned(hosts, stated).step_seconds) << stated;
  }
  EXPECT_GT(chosen.processes.size(), 1U);
}

TEST_F(PlannedLayout, TakesOneHostWhereLinksAreTooSlow) {
  ScratchDirectory::write(folder_ / "links.csv",
                          "from,to,mbit_per_s,ms\na,b,1,5\na,c,1,5\nb,c,1,5\n");
  const plan::Plan plan = planned(hosts_with(2, 2, 3), kAutomatic);
  ASSERT_EQ(plan.processes.size(), 1U);
  EXPECT_EQ(plan.processes.front().host, "c");
}

TEST_F(PlannedLayout, IsNoSlowerThanAnyStatedLayout) {
  const std::string hosts = hosts_with(0.02, 0.01, 0.03);
  const double chosen = seconds_of(planned(hosts, kAutomatic));
  for (const char* stated :
       {"stages = 1", "stages = 2", "stages = 3", "replicas = 2", "replicas = 3"}) {
    const plan::Plan plan = planned(hosts, stated);
    const double seconds = plan.sync_offers.empty() ? plan.step_seconds : [&] {
      return std::ranges::find(plan.sync_offers, plan.sync_method, &plan::Plan::SyncOffer::method)
          ->step_seconds;
    }();
    EXPECT_LE(chosen, 1.02 * seconds) << stated;
  }
}

TEST_F(PlannedLayout, StatedHostsAreTakenByReplicaThenStage) {
  const plan::Plan plan = planned(R"(["a", "b", "c"])", R"(stages = 2, hosts = ["c", "a"])");
  EXPECT_EQ(plan.processes[0].host, "c");
  EXPECT_EQ(plan.processes[1].host, "a");
}

TEST_F(PlannedLayout, HostsWithoutStagesAreLaidOut) {
  const plan::Plan plan = planned(hosts_with(0.02, 0.005, 0.02), "");
  EXPECT_GE(plan.layouts.size(), 2U);
  EXPECT_GT(plan.processes.size(), 1U);
  EXPECT_FALSE(plan.recipe.pipeline.choose_stages || plan.recipe.pipeline.choose_replicas ||
               plan.recipe.pipeline.choose_schedule || plan.recipe.model.choose_recompute);
  // A listed order stays where the recipe says how many stages there are.
  EXPECT_EQ(planned(hosts_with(0.02, 0.005, 0.02), "stages = 2").processes[1].host, "b");
}

TEST_F(PlannedLayout, StatedLayoutThatIsClearlySlowerIsNamedInOneSentence) {
  const plan::Plan plan = planned(hosts_with(0.02, 0.001, 0.02), "stages = 3");
  EXPECT_THAT(slower_layout_note(plan),
              HasSubstr(R"(with the layout that pipeline.stages = "auto")"));
  EXPECT_THAT(plan_text(plan), HasSubstr("blocks of each stage"));
  // A good one is not, nor one whose links nobody knows.
  EXPECT_EQ(slower_layout_note(planned(hosts_with(0.02, 0.001, 0.02), kAutomatic)), "");
  EXPECT_EQ(
      slower_layout_note(planned(hosts_with(0.02, 0.001, 0.02), "stages = 3", {"hosts.links="})),
      "");
}

TEST_F(PlannedLayout, CodecThatIsFasterIsNamedWithWhatItCosts) {
  const auto notes = [&](const std::vector<std::string>& overrides) {
    return make_plan(recipe(hosts_with(2, 2, 2), "stages = 3", overrides)).train.notes;
  };
  const std::vector<std::string> raw{"codec.forward=raw", "codec.backward=raw"};
  EXPECT_THAT(notes(raw), Contains(HasSubstr(R"(with codec.budget = "0.1 %" the plan chooses)")));
  EXPECT_THAT(notes({}), Not(Contains(HasSubstr("codec.budget"))));
}

TEST_F(PlannedLayout, ScheduleIsTheFastestOfAll) {
  const std::string hosts = R"([{name = "a", tflops = 0.02}, {name = "b", tflops = 0.02}])";
  const auto with = [&](const std::string& schedule) {
    return planned(hosts, fmt::format(R"(stages = 2, schedule = "{}")", schedule),
                   {"train.batch=8", "train.micro_batch=1"});
  };
  const plan::Plan chosen = with("auto");
  for (const char* schedule : {"1f1b", "gpipe", "zero_bubble", "interleaved"}) {
    EXPECT_LE(chosen.step_seconds, 1.02 * with(schedule).step_seconds) << schedule;
  }
  EXPECT_EQ(chosen.recipe.pipeline.schedule, "zero_bubble");
  EXPECT_LT(chosen.step_seconds, 0.95 * with("1f1b").step_seconds);
}

TEST_F(PlannedLayout, DepthIsTheBestOneThatFits) {
  constexpr const char* kTwoStages = "stages = 2";
  const plan::Plan roomy = planned_on_gpus(std::int64_t{1} << 40, kTwoStages);
  ASSERT_GE(roomy.depth, 2);
  const std::int64_t needed = plan::gpu_memory_needed(roomy, 0, 0);
  EXPECT_EQ(planned_on_gpus(needed, kTwoStages).depth, roomy.depth);
  const plan::Plan tight = planned_on_gpus(needed - 1, kTwoStages);
  EXPECT_EQ(tight.depth, roomy.depth - 1);
  // A stated depth is not changed.
  base::user_error(base::ExitCode::out_of_memory, [&] {
    planned_on_gpus(needed - 1, fmt::format("stages = 2, depth = {}", roomy.depth));
  });
}

TEST_F(PlannedLayout, RecomputesOnlyWhereMemoryNeedsIt) {
  const std::vector<std::string> automatic{"model.recompute=auto"};
  const std::string one = "stages = 2, depth = 0";
  const plan::Plan roomy = planned_on_gpus(std::int64_t{1} << 40, one, automatic);
  EXPECT_EQ(roomy.recipe.model.recompute, recipe::Recompute::none);
  const std::int64_t needed = plan::gpu_memory_needed(roomy, 0, 0);
  const plan::Plan tight = planned_on_gpus(needed - 1, one, automatic);
  EXPECT_EQ(tight.recipe.model.recompute, recipe::Recompute::layer);
  EXPECT_LT(plan::gpu_memory_needed(tight, 0, 0), needed);
}

TEST_F(PlannedLayout, KeepsWaitingActivationsInHostMemoryBeforeItRecomputesThem) {
  using recipe::Recompute;
  const std::string deep = "stages = 2, schedule = \"gpipe\"";
  const std::vector<std::string> many{"train.batch=16", "train.micro_batch=1"};
  const auto with = [&](std::int64_t memory, const char* recompute) {
    std::vector<std::string> settings = many;
    settings.push_back(std::string("model.recompute=") + recompute);
    return planned_on_gpus(memory, deep, settings);
  };
  const plan::Plan none = with(std::int64_t{1} << 40, "none");
  const plan::Plan offload = with(std::int64_t{1} << 40, "offload");
  const plan::Plan::Process& on_device = none.processes.front();
  const plan::Plan::Process& first = offload.processes.front();
  ASSERT_EQ(on_device.in_flight, 16);
  EXPECT_EQ(on_device.waiting_bytes, 0);
  EXPECT_GT(first.waiting_bytes, on_device.activation_bytes / 2);
  EXPECT_LE(first.waiting_bytes, on_device.activation_bytes);
  EXPECT_LT(first.activation_bytes, on_device.activation_bytes / 2);
  EXPECT_EQ(offload.host_bytes(first), none.host_bytes(on_device) + first.waiting_bytes);
  EXPECT_THAT(plan_text(offload), HasSubstr("of waiting activations in host memory: "));
  // Transfers hide behind compute at these speeds.
  EXPECT_EQ(offload.step_seconds, none.step_seconds);
  const std::int64_t needed =
      std::max(plan::gpu_memory_needed(none, 0, 0), plan::gpu_memory_needed(none, 1, 0));
  EXPECT_EQ(with(needed, "auto").recipe.model.recompute, Recompute::none);
  EXPECT_EQ(with(needed - 1, "auto").recipe.model.recompute, Recompute::offload);
}

TEST_F(PlannedLayout, SaysThatOffloadSavesNothingOnCpus) {
  const auto notes = [&](const char* device) {
    return make_plan(recipe(R"(["a", "b"])", "stages = 2",
                            {"model.recompute=offload", std::string("model.device=") + device}))
        .train.notes;
  };
  EXPECT_THAT(notes("cpu"),
              Contains(HasSubstr("saves nothing, because all stages compute on CPUs")));
  EXPECT_THAT(notes("cuda"), Not(Contains(HasSubstr("saves nothing"))));
}

// In order of cost, and no more than the recipe leaves open.
TEST_F(PlannedLayout, TakesFewerBitsAndOffloadOnlyWhereMemoryNeedsThem) {
  using recipe::Moments;
  using recipe::Offload;
  const std::string two = "stages = 2, depth = 0";
  const auto needed = [&](const std::string& moments) {
    const plan::Plan roomy = planned_on_gpus(std::int64_t{1} << 40, two,
                                             {"model.recompute=layer", "train.moments=" + moments});
    return std::max(plan::gpu_memory_needed(roomy, 0, 0), plan::gpu_memory_needed(roomy, 1, 0));
  };
  const std::vector<std::string> all{"model.recompute=auto", "train.moments=auto",
                                     "train.offload=auto"};
  const std::vector<std::string> exact{"model.recompute=auto", "train.offload=auto"};
  const auto took = [&](std::int64_t memory, const std::vector<std::string>& automatic) {
    const plan::Plan plan = planned_on_gpus(memory, two, automatic);
    return std::pair(plan.recipe.train.moments, plan.recipe.train.offload);
  };
  EXPECT_EQ(took(needed("float32"), all), std::pair(Moments::float32, Offload::none));
  EXPECT_EQ(took(needed("float32") - 1, all), std::pair(Moments::bfloat16, Offload::none));
  EXPECT_EQ(took(needed("bfloat16") - 1, all), std::pair(Moments::int8, Offload::none));
  EXPECT_EQ(took(needed("int8") - 1, all), std::pair(Moments::float32, Offload::optimizer));
  EXPECT_EQ(took(needed("float32") - 1, exact), std::pair(Moments::float32, Offload::optimizer));
  const plan::Plan tight = planned_on_gpus(needed("float32") - 1, two, exact);
  const plan::Plan::Process& first = tight.processes.front();
  // Values and gradients stay; masters and both moments are the host's.
  EXPECT_EQ(first.offloaded_bytes, 12 * first.parameters);
  EXPECT_EQ(first.state_bytes, 8 * first.parameters);
  const std::string digit = "(0\\.0*)?[1-9]0*(e-[0-9]+)? s";  // assumed
  EXPECT_THAT(plan_text(tight),
              testing::ContainsRegex("off-loaded update in " + digit + " .*, and " + digit +
                                     " of transfers .* GB/s over PCIe"));
  const std::string refused = base::user_error(base::ExitCode::out_of_memory, [&] {
    planned_on_gpus(needed("float32") - 1, two, {"model.recompute=auto"});
  });
  EXPECT_THAT(refused, HasSubstr("GPU 0 of host"));
}

TEST_F(PlannedLayout, SaysWhatItTakesForMemoryAndWhy) {
  const std::string two = "stages = 2, depth = 0";
  const plan::Plan roomy = planned_on_gpus(std::int64_t{1} << 40, two, {"model.recompute=layer"});
  // Writes gpus.toml.
  EXPECT_ANY_THROW(planned_on_gpus(plan::gpu_memory_needed(roomy, 0, 0) - 1, two));
  const std::string links = "hosts.links=" + (folder_ / "gpus.toml").string();
  const PlannedRun run =
      make_plan(recipe(R"(["a", "b"])", two,
                       {"model.device=auto", links, "model.recompute=auto", "train.offload=auto"}));
  EXPECT_THAT(run.train.notes,
              Contains(AllOf(HasSubstr("the plan takes "),
                             HasSubstr("train.offload = \"optimizer\" for memory; with less, "),
                             HasSubstr("GPU 0 of"))));
}

TEST_F(PlannedLayout, RefusesOffloadThatTheHostCannotHold) {
  const std::string hosts = R"([{name = "a", device = "A100", memory = "64MiB"}, "b", "c"])";
  EXPECT_THAT(
      base::user_error(
          base::ExitCode::out_of_memory,
          [&] {
            planned(hosts, "stages = 1", {"model.device=cuda", "train.offload=optimizer"});
          }),
      AllOf(HasSubstr("host a may use 67.1 MB"), HasSubstr("of it for what is off-loaded")));
}

// The last that memory is saved by: where a host cannot hold what its GPU, or its CPU, has no room
// for.
TEST_F(PlannedLayout, PutsTheOptimizerOnDiskWhereHostsCannotHoldIt) {
  const auto planned_with = [&](const std::string& device, std::int64_t memory,
                                const std::string& offload) {
    return planned(
        fmt::format(R"([{{name = "a", {}memory = "{}B"}}, "b", "c"])", device, memory),
        "stages = 1, hosts = [\"a\"]",
        {device.empty() ? "model.device=cpu" : "model.device=cuda", "train.offload=" + offload});
  };
  for (const std::string device : {"", "device = \"A100\", "}) {
    const std::string before = device.empty() ? "none" : "optimizer";
    const plan::Plan roomy = planned_with(device, std::int64_t{1} << 40, before);
    const std::int64_t needed = plan::host_memory_needed(roomy, 0);
    EXPECT_EQ(planned_with(device, needed, before).processes.front().disk_bytes, 0);
    EXPECT_THAT(base::user_error(base::ExitCode::out_of_memory,
                                 [&] { planned_with(device, needed - 1, before); }),
                AllOf(HasSubstr("host a may use"), HasSubstr("train.offload = \"disk\"")));
    const plan::Plan on_disk = planned_with(device, needed - 1, "disk");
    const plan::Plan::Process& only = on_disk.processes.front();
    // Moments, and of a GPU masters.
    const std::int64_t moved = (device.empty() ? 8 : 12) * only.parameters;
    EXPECT_EQ(only.disk_bytes, moved);
    EXPECT_EQ(plan::host_memory_needed(on_disk, 0), needed - moved);
    EXPECT_THAT(plan_text(on_disk), AllOf(HasSubstr("on disk"), HasSubstr("the disk of a")));
  }
  const plan::Plan roomy = planned_with("", std::int64_t{1} << 40, "none");
  const std::int64_t needed = plan::host_memory_needed(roomy, 0);
  EXPECT_EQ(planned_with("", needed, "auto").recipe.train.offload, recipe::Offload::none);
  EXPECT_EQ(planned_with("", needed - 1, "auto").recipe.train.offload, recipe::Offload::disk);
}

// A run keeps the recipe of its plan, with the layout that was chosen.
TEST_F(PlannedLayout, ResumeKeepsTheLayoutUnlessOtherStagesAreAskedFor) {
  plan::Plan first = planned(hosts_with(0.02, 0.005, 0.02), kPipelineOnly);
  first.train.file = (folder_ / "text.txt").string();
  const auto resumed = [&](const std::vector<std::string>& overrides) {
    const std::string kept = recipe::recipe_to_toml(first.recipe);
    return make_plan(recipe::parse_recipe(kept, "recipe.toml", overrides), &first).plan;
  };
  EXPECT_EQ(resumed({"train.steps=12"}).recipe.pipeline, first.recipe.pipeline);
  EXPECT_LE(seconds_of(resumed({"pipeline.stages=auto"})), 1.03 * seconds_of(first));
  EXPECT_TRUE(resumed({"pipeline.stages=1"}).recipe.pipeline.hosts.empty());
}

TEST_F(PlannedLayout, WrongHostsGetASentence) {
  const auto refusal = [&](const std::string& pipeline) {
    return base::user_error(base::ExitCode::bad_input, [&] { recipe(R"(["a", "b"])", pipeline); });
  };
  EXPECT_THAT(refusal(R"(stages = 2, hosts = ["a"])"),
              HasSubstr("pipeline.hosts has 1 names, but the run has 2 processes"));
  EXPECT_THAT(refusal(R"(stages = 2, hosts = ["a", "z"])"),
              HasSubstr("pipeline.hosts names z (recipe.toml:4:"));
  EXPECT_THAT(refusal(R"(stages = "auto", hosts = ["a"])"), HasSubstr("leave pipeline.hosts out"));
}

// The stage whose link is narrow is not what computes, and twice of what takes longest brings most.
TEST_F(PlannedLayout, LoadNamesWhatTakesLongest) {
  const plan::Plan plan = planned(hosts_with(0.02, 0.001, 0.02), "stages = 3");
  const PlanLoad load = load_of(plan);
  EXPECT_EQ(load.limit.name, "compute of b");
  EXPECT_NEAR(load.step_seconds, plan.step_seconds, 0.01 * plan.step_seconds);
  EXPECT_LT(load.limit.twice_seconds, 0.7 * load.step_seconds);
  EXPECT_EQ(load.fastest, "a");
  EXPECT_LT(load.alone_seconds, load.step_seconds);
  EXPECT_LE(load.without_network_seconds, load.step_seconds);
  ASSERT_EQ(load.stages.size(), 3U);
  ASSERT_EQ(load.lines.size(), 4U);
  EXPECT_LT(load.stages[0].busy_seconds, load.stages[1].busy_seconds);
  // Where compute takes no time, it is the narrow link.
  EXPECT_EQ(load_of(planned(hosts_with(20, 20, 20), "stages = 3")).limit.name,
            "the link from b to c");
  std::istringstream text(load_text(plan));
  for (std::string line; std::getline(text, line);) EXPECT_LE(line.size(), 80U) << line;
}

TEST_F(PlannedLayout, OneHostAloneMakesItsUpdateToo) {
  const std::string hosts = hosts_with(20, 20, 20);
  const double alone = planned(hosts, "stages = 1").step_seconds;
  EXPECT_NEAR(load_of(planned(hosts, "stages = 2")).alone_seconds, alone, 0.15 * alone);
}

TEST_F(PlannedLayout, FileOfLinksWithOtherNamesIsNamed) {
  const auto notes = [&](const std::string& hosts) {
    return make_plan(recipe(hosts, "stages = 2")).train.notes;
  };
  EXPECT_THAT(notes(R"(["a", "d"])"),
              Contains(HasSubstr("links.csv says nothing of d, but has b, which is not in")));
  EXPECT_THAT(notes(R"(["a", "b"])"), Not(Contains(HasSubstr("says nothing of")))) << "or all";
}

TEST_F(PlannedLayout, PartsOfAStepAreThoseOfItsProcessesAndLinks) {
  using Kind = plan::StepPart::Kind;
  const plan::Plan plan = planned(hosts_with(0.02, 0.001, 0.02), "stages = 3");
  ASSERT_EQ(plan.parts.size(), 1U + 2 * 3 + 2 * 3 + 2 * 2 + 1);
  EXPECT_EQ(plan.parts.front().kind, Kind::step);
  EXPECT_DOUBLE_EQ(plan.parts.front().seconds, plan.step_seconds);
  EXPECT_EQ(plan.parts.back().kind, Kind::wait);
  double computes = 0;
  for (const plan::StepPart& part : plan.parts) {
    EXPECT_FALSE(part.assumed && part.kind != Kind::update) << part.name;  // stated and measured
    if (part.kind == Kind::compute) computes = std::max(computes, part.seconds);
    if (part.kind == Kind::encode || part.kind == Kind::decode) {
      // Stage 1 sends and receives over two boundaries; all values are float32 of 256 channels.
      const double rate = codec::codecs().named("fixed").coded_bytes_per_second;
      const int messages = part.process.stage == 1 ? 2 : 1;
      EXPECT_NEAR(part.seconds, messages * 24 * 64 * 256 * 4 / rate, 1e-9) << part.name;
    }
    if (part.kind != Kind::link) continue;
    const auto link = std::ranges::find(plan.links, part.link, &plan::Plan::Link::name);
    const double bytes = static_cast<double>(part.process == link->connects ? link->forward_bytes
                                                                            : link->backward_bytes);
    const double megabits = part.link == "boundary 1.0>2.0" ? 75 : 300;
    EXPECT_NEAR(part.seconds, 8 * bytes / (megabits * 1e6), 1e-9) << part.name;
  }
  EXPECT_NEAR(computes, load_of(plan).stages[1].busy_seconds, 0.02 * computes);
}

TEST_F(PlannedLayout, FastReplicasGetMoreRows) {
  const std::string hosts = hosts_with(0.02, 0.005, 0.02);
  const std::string pipeline = R"(stages = 1, replicas = 2)";
  const std::vector<std::string> apart{"sync.method=diloco"};
  const plan::Plan chosen = planned(hosts, pipeline, apart);
  // Four times as fast.
  ASSERT_EQ(chosen.replica_rows.size(), 2U);
  EXPECT_NEAR(static_cast<double>(chosen.replica_rows[0]), 19.2, 0.9);
  EXPECT_EQ(chosen.replica_rows[0] + chosen.replica_rows[1], 24);
  EXPECT_EQ(chosen.micro_batches_of(1), chosen.replica_rows[1]);
  EXPECT_EQ(chosen.training_actions({0, 1}).size(),
            2 * static_cast<std::size_t>(chosen.replica_rows[1]));
  EXPECT_THAT(plan_text(chosen),
              HasSubstr("rows of a step: 20 of replica 0 (host a), 4 of replica"));
  const plan::Plan equal = planned(hosts, R"(stages = 1, replicas = 2, rows = "equal")", apart);
  EXPECT_TRUE(equal.replica_rows.empty());
  EXPECT_EQ(equal.micro_batches, 12);
  EXPECT_LT(chosen.step_seconds, 0.5 * equal.step_seconds);
  EXPECT_THAT(plan_text(equal), Not(HasSubstr("rows of a step")));
  // Hosts of one speed.
  EXPECT_TRUE(planned(hosts_with(0.02, 0.02, 0.02), pipeline, apart).replica_rows.empty());
  EXPECT_THAT(planned(hosts, R"(stages = 1, replicas = 2, rows = [14, 10])").replica_rows,
              testing::ElementsAre(14, 10));
}

TEST_F(PlannedLayout, MethodsThatCountReplicasTheSameHaveEqualRows) {
  const std::string hosts = hosts_with(0.02, 0.005, 0.02);
  EXPECT_TRUE(
      planned(hosts, "stages = 1, replicas = 2", {"sync.method=noloco"}).replica_rows.empty());
  const std::string refused = base::user_error(base::ExitCode::bad_input, [&] {
    planned(hosts, "stages = 1, replicas = 2, rows = [14, 10]", {"sync.method=noloco"});
  });
  EXPECT_THAT(refused, AllOf(HasSubstr("pipeline.rows is [14, 10] (recipe.toml:"),
                             HasSubstr("\"noloco\""), HasSubstr("choose another method")));
  const plan::Plan chosen = planned(hosts, "stages = 1, replicas = 2", {"sync.method=auto"});
  EXPECT_FALSE(chosen.replica_rows.empty());
  EXPECT_TRUE(allows_unequal_rows(chosen.sync_method)) << chosen.sync_method;
}

// The order of samples depends on them.
TEST_F(PlannedLayout, ResumedRunKeepsTheRowsOfItsReplicasOnTheSameHosts) {
  const auto resumed = [&](const std::string& hosts, const plan::Plan& before) {
    plan::Plan own = before;
    own.train.file = (folder_ / "text.txt").string();
    return make_plan(recipe(hosts, "stages = 1, replicas = 2", {"sync.method=diloco"}), &own)
        .plan.replica_rows;
  };
  const plan::Plan first =
      planned(hosts_with(0.02, 0.005, 0.02), "stages = 1, replicas = 2", {"sync.method=diloco"});
  EXPECT_EQ(resumed(hosts_with(0.02, 0.01, 0.02), first), first.replica_rows);
  const std::string other = R"([{name = "c", tflops = 0.02}, {name = "b", tflops = 0.01}])";
  EXPECT_NE(resumed(other, first), first.replica_rows);
}

// Replicas that train apart wait for no message of others in a step, and for a round once in many.
TEST_F(PlannedLayout, ReplicasThatTrainApartMayBeFarFromEachOther) {
  ScratchDirectory::write(folder_ / "links.csv", "from,to,mbit_per_s,ms\na,b,300,10000\n");
  const auto replicas_with = [&](const std::vector<std::string>& sync) {
    std::vector<std::string> overrides{"train.steps=1000"};
    overrides.insert(overrides.end(), sync.begin(), sync.end());
    return planned(R"([{name = "a", tflops = 0.02}, {name = "b", tflops = 0.02}])",
                   "stages = 1, replicas = \"auto\"", overrides)
        .recipe.pipeline.replicas;
  };
  EXPECT_EQ(replicas_with({"sync.method=diloco", "sync.every=500"}), 2);
  EXPECT_EQ(replicas_with({"sync.method=allreduce"}), 1);
}

TEST_F(PlannedLayout, TextNamesTheChosenAndTheNextLayouts) {
  const std::string text = plan_text(planned(hosts_with(0.02, 0.005, 0.02), kPipelineOnly));
  EXPECT_THAT(text, HasSubstr("* "));
  EXPECT_THAT(text, HasSubstr("blocks of each stage"));
  EXPECT_THAT(text, HasSubstr("0.02 Tflop/s a process on a"));
  EXPECT_THAT(plan_text(planned(R"(["a", "b", "c"])", "stages = 2", {"hosts.links="})),
              Not(HasSubstr("blocks of each stage")));
}

TEST_F(PlannedLayout, BudgetTakesFastestCodecsThatCostNoMore) {
  codec_ = R"(budget = "0.1 %", cache = "1MiB")";
  const std::string hosts = R"([{name = "b", tflops = 1}, {name = "c", tflops = 1}])";
  ScratchDirectory::write(folder_ / "narrow.csv", "from,to,mbit_per_s,ms\nb,c,10,5\n");
  const std::string narrow_link = "hosts.links=" + (folder_ / "narrow.csv").string();
  const auto codec = [&](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), narrow_link);
    return planned(hosts, "stages = 2", overrides).recipe.codec;
  };
  const codec::CodecSettings narrow = codec({});
  EXPECT_EQ(narrow.forward, "transform");
  EXPECT_EQ(narrow.forward_bits, 4);
  EXPECT_EQ(narrow.cache, std::int64_t{1} << 20) << "other keys stay";
  EXPECT_EQ(narrow.budget, 0) << "a resumed run keeps what was chosen";
  // Fewer bits lose more in a long run.
  const codec::CodecSettings of_long_run = codec({"train.steps=1500"});
  EXPECT_EQ(of_long_run.forward, "delta");
  EXPECT_EQ(of_long_run.forward_bits, 6);
  EXPECT_EQ(of_long_run.backward, "fixed");
  ScratchDirectory::write(folder_ / "wide.csv", "from,to,mbit_per_s,ms\nb,c,1000000,0\n");
  EXPECT_EQ(codec({"hosts.links=" + (folder_ / "wide.csv").string()}).forward, "raw");
  EXPECT_EQ(codec({"codec.budget=0.001 %"}).wire_dtype, codec::WireDtype::bfloat16);
  const std::vector<std::string> notes =
      make_plan(recipe(hosts, "stages = 2", {narrow_link})).train.notes;
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("codec.budget = \"0.1 %\": transform 4 and transform "
                                              "5 bits, which cost 0.08 % of the loss"),
                                    HasSubstr("the others: raw float32"))));
}

TEST(CodecsWithin, AreOrderedByWhatTheyCost) {
  for (const std::int64_t steps : {100, 1500}) {
    for (const double budget : {0.0, 0.05, 0.1, 1.0}) {
      const std::vector<MeasuredCodec> within = codecs_within(budget, steps);
      ASSERT_FALSE(within.empty());
      EXPECT_EQ(within.front().settings.forward, "raw");
      EXPECT_TRUE(std::ranges::is_sorted(
          within, {}, [&](const MeasuredCodec& one) { return one.loss(steps); }));
      EXPECT_LE(within.back().loss(steps), budget);
    }
  }
}

}  // namespace
}  // namespace strait::planner

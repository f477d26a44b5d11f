#include "launcher/cli/saved_checkpoints.h"

#include "tests/saved_checkpoint.h"
#include "tests/scratch_directory.h"

namespace strait::cli {
namespace {

namespace fs = std::filesystem;
using State = SavedCheckpoint::State;

// One stage's files; its state lies on a host where `here` is only the weights.
void save(const fs::path& run, std::int64_t step, bool whole) {
  const fs::path path =
      store::save_checkpoint(run, step, {store::weights_name(0, 0), store::shard_name(0, 0)});
  if (!whole) fs::remove(path / store::shard_name(0, 0));
}

plan::Plan plan_on(recipe::BackendKind backend) {
  plan::Plan plan;
  plan.recipe.hosts.backend = backend;
  plan.processes.resize(1);
  plan.processes[0].host = "b";
  return plan;
}

TEST(SavedCheckpoints, SayWhatIsHereAndWhatIsWrong) {
  const ScratchDirectory run;
  save(run / "", 10, true);
  save(run / "", 20, false);
  fs::create_directories(run / "" / "checkpoints" / "step-30");
  fs::create_directories(run / "" / "checkpoints" / "step-40.aside-1");
  const auto on_hosts = saved_checkpoints(run / "", plan_on(recipe::BackendKind::ssh));
  ASSERT_EQ(on_hosts.size(), 4U);
  EXPECT_EQ(on_hosts[0].state, State::aside);
  EXPECT_EQ(on_hosts[1].state, State::unfinished);
  EXPECT_EQ(on_hosts[2].state, State::complete);
  EXPECT_EQ(on_hosts[2].here, store::Part::weights);
  EXPECT_THAT(on_hosts[2].hosts, testing::ElementsAre("b"));
  EXPECT_EQ(on_hosts[3].here, store::Part::all);
  EXPECT_THAT(on_hosts[3].hosts, testing::IsEmpty());
  EXPECT_GT(on_hosts[3].saved, 1e9);
  // On this machine alone nothing can be elsewhere.
  const auto here = saved_checkpoints(run / "", plan_on(recipe::BackendKind::local));
  EXPECT_EQ(here[2].state, State::damaged);
  EXPECT_THAT(here[2].problem, testing::HasSubstr(store::shard_name(0, 0)));
}

TEST(SavedCheckpoints, FilesThatHaveNotComeHomeAreNoDamage) {
  const ScratchDirectory run;
  save(run / "", 10, false);
  const fs::path weights =
      store::checkpoint_directory(run / "", store::Step{10}) / store::weights_name(0, 0);
  const plan::Plan plan = plan_on(recipe::BackendKind::ssh);
  ScratchDirectory::write(weights, "short");
  EXPECT_EQ(saved_checkpoints(run / "", plan).front().state, State::damaged);
  fs::remove(weights);
  const SavedCheckpoint away = saved_checkpoints(run / "", plan).front();
  EXPECT_EQ(away.state, State::complete) << away.problem;
  EXPECT_EQ(away.here, store::Part::none);
  EXPECT_THAT(away.hosts, testing::ElementsAre("b"));
  EXPECT_EQ(saved_checkpoints(run / "", plan_on(recipe::BackendKind::local)).front().state,
            State::damaged);
}

void flip_last_byte(const fs::path& file) {
  std::string text = ScratchDirectory::read(file);
  text.back() ^= 1;
  ScratchDirectory::write(file, text);
}

std::vector<std::int64_t> kept_of(const std::vector<SavedCheckpoint>& list, std::int64_t keep) {
  std::vector<std::int64_t> steps;
  for (const store::Step step : kept_steps(list, keep, {})) steps.push_back(number(step));
  return steps;
}

// The sizes of a damaged checkpoint are right: it must not be what is left of the run.
TEST(MarkDamaged, ReadsTheNewestUntilEnoughAreIntact) {
  const ScratchDirectory run;
  for (const std::int64_t step : {10, 20, 30, 40}) save(run / "", step, true);
  const auto file = [&](std::int64_t step, const std::string& name) {
    return store::checkpoint_directory(run / "", store::Step{step}) / name;
  };
  const plan::Plan plan = plan_on(recipe::BackendKind::local);
  flip_last_byte(file(40, store::weights_name(0, 0)));
  flip_last_byte(file(10, store::weights_name(0, 0)));
  auto list = saved_checkpoints(run / "", plan);
  EXPECT_THAT(kept_of(list, 1), testing::ElementsAre(40));
  EXPECT_THAT(mark_damaged(list, plan, 1), testing::ElementsAre(testing::HasSubstr("step-40")));
  EXPECT_EQ(list[0].state, State::damaged);
  EXPECT_EQ(list[3].state, State::complete) << "older than what is to stay: not read";
  EXPECT_THAT(kept_of(list, 1), testing::ElementsAre(40, 30));
  EXPECT_THAT(intact_instead(list, plan, store::Step{40}), testing::HasSubstr("--step 30"));
  for (const std::int64_t step : {20, 30}) flip_last_byte(file(step, store::shard_name(0, 0)));
  EXPECT_EQ(mark_damaged(list, plan, 1).size(), 3U);
  EXPECT_THAT(kept_of(list, 1), testing::IsEmpty());
  EXPECT_THAT(intact_instead(list, plan, store::Step{40}), testing::HasSubstr("no other"));
}

// What lies on hosts is not read, and does not count against the checkpoint.
TEST(MarkDamaged, ReadsOnlyWhatIsHere) {
  const ScratchDirectory run;
  for (const std::int64_t step : {10, 20}) save(run / "", step, false);
  const plan::Plan plan = plan_on(recipe::BackendKind::ssh);
  auto list = saved_checkpoints(run / "", plan);
  EXPECT_THAT(mark_damaged(list, plan, 2), testing::IsEmpty());
  flip_last_byte(store::checkpoint_directory(run / "", store::Step{20}) /
                 store::weights_name(0, 0));
  EXPECT_EQ(mark_damaged(list, plan, 1).size(), 1U);
  EXPECT_THAT(kept_of(list, 1), testing::ElementsAre(20, 10));
}

TEST(MarkDamaged, ReadsUntilOneThatIsKnownToBeGoodIsIntact) {
  const ScratchDirectory run;
  for (const std::int64_t step : {10, 20, 30, 40}) save(run / "", step, true);
  const plan::Plan plan = plan_on(recipe::BackendKind::local);
  flip_last_byte(store::checkpoint_directory(run / "", store::Step{20}) / store::shard_name(0, 0));
  auto list = saved_checkpoints(run / "", plan);
  const store::Step good{25};
  EXPECT_THAT(mark_damaged(list, plan, 1, good),
              testing::ElementsAre(testing::HasSubstr("step-20")));
  EXPECT_THAT(kept_steps(list, 1, {}, good),
              testing::ElementsAre(store::Step{40}, store::Step{10}));
  EXPECT_THAT(kept_steps(list, 1, {}, store::Step{40}), testing::ElementsAre(store::Step{40}));
}

TEST(MarkDamaged, ReadsAllThatMayBeTheBest) {
  const ScratchDirectory run;
  for (const std::int64_t step : {10, 20, 30, 40}) save(run / "", step, true);
  const plan::Plan plan = plan_on(recipe::BackendKind::local);
  flip_last_byte(store::checkpoint_directory(run / "", store::Step{20}) / store::shard_name(0, 0));
  auto list = saved_checkpoints(run / "", plan);
  const store::BestRule best{1, {store::Step{20}, store::Step{10}, store::Step{30}}};
  EXPECT_THAT(kept_steps(list, 1, {}, {}, best),
              testing::ElementsAre(store::Step{40}, store::Step{20}));
  EXPECT_THAT(mark_damaged(list, plan, 1, {}, best),
              testing::ElementsAre(testing::HasSubstr("step-20")));
  EXPECT_THAT(kept_steps(list, 1, {}, {}, best),
              testing::ElementsAre(store::Step{40}, store::Step{10}));
}

TEST(KeptSteps, CountCompleteOnesAndNeverGiveUpTheNewest) {
  const auto list = [](std::vector<std::pair<std::int64_t, State>> states) {
    std::vector<SavedCheckpoint> saved;
    for (const auto& [step, state] : states) {
      saved.push_back(
          {.path = {}, .step = store::Step{step}, .state = state, .hosts = {}, .problem = {}});
    }
    return saved;
  };
  const auto kept = [](const std::vector<SavedCheckpoint>& saved, std::int64_t keep,
                       std::optional<std::int64_t> every = {}) {
    std::vector<std::int64_t> steps;
    for (const store::Step step : kept_steps(saved, keep, every)) steps.push_back(number(step));
    return steps;
  };
  const auto mixed = list({{90, State::unfinished},
                           {80, State::damaged},
                           {70, State::complete},
                           {60, State::damaged},
                           {50, State::complete},
                           {40, State::foreign},
                           {30, State::damaged},
                           {20, State::complete},
                           {10, State::aside}});
  EXPECT_THAT(kept(mixed, 1), testing::ElementsAre(80, 70, 40));
  EXPECT_THAT(kept(mixed, 2), testing::ElementsAre(80, 70, 60, 50, 40));
  EXPECT_THAT(kept(mixed, 1, 20), testing::ElementsAre(80, 70, 40, 20));
  EXPECT_THAT(kept(mixed, 9), testing::ElementsAre(80, 70, 60, 50, 40, 30, 20));
  EXPECT_THAT(kept(list({{9, State::unfinished}, {8, State::damaged}}), 1), testing::IsEmpty());
}

}  // namespace
}  // namespace strait::cli

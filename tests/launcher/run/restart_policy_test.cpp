#include "launcher/run/restart_policy.h"

#include <gtest/gtest.h>

namespace strait::run {
namespace {

using base::ExitCode;
using std::chrono::milliseconds;

Outcome ended(ExitCode code, const std::string& cause = "stage 1.0 was killed") {
  Outcome outcome;
  outcome.code = code;
  outcome.cause = cause;
  return outcome;
}

TEST(RestartPolicy, RestartsAfterFailuresThatMayPass) {
  for (const ExitCode code :
       {ExitCode::peer_lost, ExitCode::stalled, ExitCode::internal, ExitCode::storage_io}) {
    EXPECT_TRUE(RestartPolicy(3).after(ended(code), std::nullopt).restart) << base::meaning(code);
  }
  for (const ExitCode code :
       {ExitCode::done, ExitCode::bad_input, ExitCode::mismatch, ExitCode::authentication,
        ExitCode::fenced, ExitCode::storage_full, ExitCode::corrupt, ExitCode::numeric,
        ExitCode::out_of_memory, ExitCode::interrupted}) {
    const auto decision = RestartPolicy(3).after(ended(code), store::Step{5});
    EXPECT_FALSE(decision.restart || decision.exhausted) << base::meaning(code);
  }
}

TEST(RestartPolicy, NoRestartAfterStopOfUser) {
  Outcome outcome = ended(ExitCode::peer_lost);
  outcome.stopped = true;
  const auto decision = RestartPolicy(3).after(outcome, store::Step{5});
  EXPECT_FALSE(decision.restart || decision.exhausted);
}

TEST(RestartPolicy, NoRestartWhereLimitIsZero) {
  const auto decision = RestartPolicy(0).after(ended(ExitCode::peer_lost), std::nullopt);
  EXPECT_FALSE(decision.restart || decision.exhausted);
}

TEST(RestartPolicy, GivesUpWithoutNewCheckpointAndKeepsFirstCause) {
  RestartPolicy policy(2);
  EXPECT_EQ(policy.after(ended(ExitCode::internal, "first"), store::Step{5}).number, 1);
  EXPECT_EQ(policy.after(ended(ExitCode::peer_lost, "second"), store::Step{5}).number, 2);
  const auto last = policy.after(ended(ExitCode::stalled, "third"), store::Step{5});
  EXPECT_FALSE(last.restart);
  EXPECT_TRUE(last.exhausted);
  EXPECT_EQ(policy.first_failure().cause, "first");
  EXPECT_EQ(policy.first_failure().code, ExitCode::internal);
}

TEST(RestartPolicy, NewCheckpointBeginsNewRow) {
  RestartPolicy policy(2);
  for (std::int64_t step = 0; step < 20; ++step) {
    const auto newest = step == 0 ? std::nullopt : std::optional(store::Step{step});
    const auto decision = policy.after(ended(ExitCode::peer_lost, std::to_string(step)), newest);
    EXPECT_TRUE(decision.restart) << step;
    EXPECT_EQ(decision.number, 1);
    EXPECT_EQ(policy.first_failure().cause, std::to_string(step));
  }
}

TEST(RestartPolicy, NeitherAnOlderCheckpointNorADiskThatIsAwayIsProgress) {
  RestartPolicy policy(4);
  EXPECT_EQ(policy.after(ended(ExitCode::peer_lost), store::Step{19}).number, 1);
  EXPECT_EQ(policy.after(ended(ExitCode::peer_lost), std::nullopt).number, 2);
  EXPECT_EQ(policy.after(ended(ExitCode::peer_lost), store::Step{19}).number, 3);
  EXPECT_EQ(policy.after(ended(ExitCode::peer_lost), store::Step{7}).number, 4);
  EXPECT_TRUE(policy.after(ended(ExitCode::peer_lost), store::Step{7}).exhausted);
}

TEST(RestartPolicy, CheckpointAfterGoingBackIsProgress) {
  RestartPolicy policy(2);
  policy.after(ended(ExitCode::peer_lost), store::Step{19});
  EXPECT_EQ(policy.after(ended(ExitCode::peer_lost), store::Step{7}).number, 2);
  Outcome saved = ended(ExitCode::peer_lost);
  saved.checkpoint = store::Step{12};
  EXPECT_EQ(policy.after(saved, store::Step{12}).number, 1);
}

TEST(RestartPolicy, DelayIsZeroAtFirstThenGrowsToTenSeconds) {
  RestartPolicy policy(1000);
  std::vector<std::int64_t> delays;
  for (int i = 0; i < 1000; ++i) {
    delays.push_back(policy.after(ended(ExitCode::peer_lost), std::nullopt).delay.count());
  }
  EXPECT_EQ(std::vector(delays.begin(), delays.begin() + 7),
            (std::vector<std::int64_t>{0, 1000, 2000, 4000, 8000, 10'000, 10'000}));
  EXPECT_EQ(delays.back(), 10'000);
}

TEST(RestartPolicy, LimitIsOfRecipeElseOfBackend) {
  recipe::Recipe::Hosts hosts;
  EXPECT_EQ(restart_limit(hosts), 0);
  hosts.backend = recipe::BackendKind::join;
  EXPECT_EQ(restart_limit(hosts), 3);
  hosts.backend = recipe::BackendKind::ssh;
  EXPECT_EQ(restart_limit(hosts), 3);
  hosts.restart = 0;
  EXPECT_EQ(restart_limit(hosts), 0);
}

}  // namespace
}  // namespace strait::run

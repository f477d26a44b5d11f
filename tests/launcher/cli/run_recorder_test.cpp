#include "launcher/run/run_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>

#include "launcher/base/errors.h"
#include "launcher/cli/verbs.h"
#include "tests/saved_checkpoint.h"
#include "tests/scratch_directory.h"

namespace strait::run {
namespace {

using nlohmann::json;
using store::Step;
using testing::HasSubstr;

class RunRecorderTest : public testing::Test {
 protected:
  std::vector<json> lines(const std::filesystem::path& file) {
    std::istringstream in(ScratchDirectory::read(file));
    std::vector<json> all;
    for (std::string line; std::getline(in, line);) all.push_back(json::parse(line));
    return all;
  }
  json status() { return json::parse(ScratchDirectory::read(run_ / "status.json")); }
  std::string shown(bool as_json) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(cli::show_status(run_, as_json), base::ExitCode::done);
    return testing::internal::GetCapturedStdout();
  }
  static StepLine line(std::int64_t step) {
    StepLine line;
    line.step = Step{step};
    line.loss = 0.1 + 0.2;
    line.seconds = 2;
    return line;
  }

  ScratchDirectory scratch_;
  std::filesystem::path run_ = scratch_ / "dates";
};

TEST_F(RunRecorderTest, WritesOneExactLinePerStep) {
  const RunDirectory directory = RunDirectory::create(run_, RunDirectory::Existing::refuse);
  RunRecorder recorder(directory, "abc", 1);
  recorder.training(Step{}, Step{300});
  recorder.step(line(1));
  recorder.step(line(2));
  const auto metrics = lines(directory.metrics());
  ASSERT_EQ(metrics.size(), 2U);
  EXPECT_EQ(metrics[1].at("step"), 2);
  EXPECT_EQ(metrics[1].at("loss").get<double>(), 0.1 + 0.2);
}

TEST_F(RunRecorderTest, WritesIntoMetricsThatWereReplacedBeforeTraining) {
  const RunDirectory directory = RunDirectory::create(run_, RunDirectory::Existing::refuse);
  RunRecorder recorder(directory, "abc", 1);
  ScratchDirectory::write(run_ / "cut", "{\"step\":1}\n");
  std::filesystem::rename(run_ / "cut", directory.metrics());
  recorder.training(Step{1}, Step{300});
  recorder.step(line(2));
  EXPECT_EQ(lines(directory.metrics()).size(), 2U);
}

TEST_F(RunRecorderTest, StatusListsAbsentReplicasUntilTheyJoin) {
  const RunDirectory directory = RunDirectory::create(run_, RunDirectory::Existing::refuse);
  RunRecorder recorder(directory, "abc", 1);
  recorder.training(Step{}, Step{300});
  recorder.replicas_absent({{1}, {0, 2}});
  EXPECT_THAT(shown(false),
              HasSubstr("active replicas: 0, 2\n  replica 1 is absent: absent since the run "
                        "began\n"));
  recorder.replica_joined({1, Step{4}, {0, 1, 2}});
  EXPECT_THAT(shown(false), HasSubstr("active replicas: 0, 1, 2\n"));
  EXPECT_THAT(shown(false), testing::Not(HasSubstr("is absent")));
}

TEST_F(RunRecorderTest, RecordsOutcomeOfEachRejoin) {
  const RunDirectory directory = RunDirectory::create(run_, RunDirectory::Existing::refuse);
  RunRecorder recorder(directory, "abc", 1);
  recorder.training(Step{}, Step{300});
  recorder.replicas_absent({{1, 2, 3}, {0}});
  recorder.rejoin_attempted({1, ""});
  recorder.rejoin_attempted({1, "its host is off"});
  recorder.rejoin_attempted({2, ""});
  recorder.replica_joined({2, Step{4}, {0, 2}});
  recorder.replica_left({2, Step{5}, "it was killed", {0}});
  recorder.rejoin_attempted({3, ""});
  const std::string text = shown(false);
  EXPECT_THAT(text, HasSubstr("replica 1 did not rejoin: its host is off\n"));
  EXPECT_THAT(text, HasSubstr("replica 2 left at step 5: it was killed\n"));
  EXPECT_THAT(text, HasSubstr("replica 3 is rejoining\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("replica 2 is rejoining")));
  const json rejoins = json::parse(shown(true)).at("rejoins");
  EXPECT_EQ(rejoins.at("1").at("state"), "failed");
  EXPECT_EQ(rejoins.at("2").at("state"), "joined");
  EXPECT_EQ(rejoins.at("2").at("step"), 4);
  EXPECT_EQ(rejoins.at("3").at("number"), 3);
}

TEST_F(RunRecorderTest, RecordsEventsInOrder) {
  const RunDirectory directory = RunDirectory::create(run_, RunDirectory::Existing::refuse);
  RunRecorder recorder(directory, "abc", 3);
  recorder.connected({{1, 0}, 4711, "b", "x"});
  recorder.training(Step{5}, Step{300});
  recorder.checkpointed(Step{100});
  recorder.checkpoint_failed(Step{200}, "no room");
  recorder.ended({});
  std::vector<std::string> names;
  for (const json& event : lines(directory.events())) names.push_back(event.at("event"));
  EXPECT_THAT(names, testing::ElementsAre("started", "connected", "training", "checkpoint",
                                          "checkpoint_failed", "ended"));
}

TEST_F(RunRecorderTest, StatusShowsProcessesAndOutcome) {
  {
    const RunDirectory directory = RunDirectory::create(run_, RunDirectory::Existing::refuse);
    EXPECT_THAT(shown(false), HasSubstr("preparing"));
    RunRecorder recorder(directory, "abc", 1);
    recorder.training(Step{}, Step{300});
    recorder.step(line(120));
    recorder.checkpointed(Step{100});
    ProcessReport report{{1, 0}, "b", 4711, Progress{}, 0.4};
    report.progress->waits_for = "stage 1.0 waits 41 s for forward";
    recorder.reports({report});
    const std::string text = shown(false);
    EXPECT_THAT(text, HasSubstr("training (process " + std::to_string(::getpid())));
    EXPECT_THAT(text, HasSubstr("step 120/300 · loss 0.3 · ETA 6:00 · checkpoint at step 100"));
    EXPECT_THAT(text, HasSubstr("stage 1.0 on b (pid 4711): step 0, stage 1.0 waits 41 s"));
    const json read = json::parse(shown(true));
    EXPECT_EQ(read.at("live"), true);
    EXPECT_EQ(read.at("pid"), ::getpid());
    EXPECT_TRUE(read.at("processes").at(0).at("micro_batch").is_null()) << "between steps";
    Outcome outcome;
    outcome.code = base::ExitCode::stalled;
    outcome.cause = "stage 1.0 hung";
    recorder.ended(outcome);
  }
  EXPECT_THAT(shown(false), HasSubstr("ended with code 21 (stalled): stage 1.0 hung"));
  EXPECT_EQ(json::parse(shown(true)).at("live"), false);
}

TEST_F(RunRecorderTest, StatusReportsDeadLauncher) {
  {
    const RunDirectory directory = RunDirectory::create(run_, RunDirectory::Existing::refuse);
    RunRecorder recorder(directory, "abc", 1);
    recorder.training(Step{}, Step{300});
  }
  EXPECT_THAT(shown(false), HasSubstr("its launcher is gone"));
  EXPECT_THAT(shown(false), HasSubstr("/recipe.toml --replace"));  // nothing to resume from
  store::save_checkpoint(run_, 12, {});
  EXPECT_THAT(shown(false), testing::ContainsRegex("resume with: (\\./)?strait resume"));
}

TEST_F(RunRecorderTest, StatusOfAStartThatFailedEarlyShowsHowFarTheRunIs) {
  Outcome outcome;
  outcome.step = Step{6};
  const RunDirectory directory = RunDirectory::create(run_, RunDirectory::Existing::refuse);
  {
    RunRecorder recorder(directory, "abc", 1, Step{}, Step{8});
    recorder.training(Step{}, Step{8});
    recorder.step(line(6));
    recorder.ended(outcome);
  }
  RunRecorder recorder(directory, "abc", 2, Step{6}, Step{8});
  outcome.code = base::ExitCode::mismatch;
  recorder.ended(outcome);
  EXPECT_THAT(shown(false), HasSubstr("step 6/8 · loss 0.3"));
  EXPECT_THAT(shown(false), HasSubstr("checkpoint at step 6"));
}

TEST_F(RunRecorderTest, StatusOfACopySaysThatItHasNotBeenStarted) {
  std::filesystem::create_directory(run_);
  store::save_checkpoint(run_, 12, {});
  EXPECT_THROW(cli::show_status(run_, false), base::UserError);
  ScratchDirectory::write(run_ / "plan.json", "of another build");
  EXPECT_THAT(shown(false), HasSubstr("a copy at step 12 that has not been started; "));
  EXPECT_EQ(json::parse(shown(true)).at("state"), "not started");
}

TEST_F(RunRecorderTest, StatusRefusesMissingAndDamagedFiles) {
  EXPECT_THROW(cli::show_status(run_, false), base::UserError);
  std::filesystem::create_directory(run_);
  for (const char* rubbish : {"", "{", "{}", "[1]", R"({"state":1})"}) {
    ScratchDirectory::write(run_ / "status.json", rubbish);
    EXPECT_THROW(cli::show_status(run_, false), base::UserError) << rubbish;
  }
}

TEST_F(RunRecorderTest, ContinuesWhenFilesCannotBeWritten) {
  const RunDirectory directory = RunDirectory::create(run_, RunDirectory::Existing::refuse);
  RunRecorder recorder(directory, "abc", 1);
  std::filesystem::remove_all(run_);
  EXPECT_NO_THROW(recorder.training(Step{}, Step{300}));
  EXPECT_NO_THROW(recorder.step(line(1)));
  EXPECT_NO_THROW(recorder.ended({}));
}

// No file of this process can grow beyond what one has now: as on a full disk, writes fail.
class FullDisk {
 public:
  explicit FullDisk(const std::filesystem::path& file) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit full{std::filesystem::file_size(file), before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &full);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit before_{};
};

TEST_F(RunRecorderTest, EventsThatAFullDiskRefusesAreWrittenLater) {
  const RunDirectory directory = RunDirectory::create(run_, RunDirectory::Existing::refuse);
  RunRecorder recorder(directory, "abc", 1);
  recorder.training(Step{}, Step{300});
  {
    const FullDisk full(directory.events());
    recorder.evaluated({Step{2}, 3.0, 900});
    recorder.evaluated({Step{4}, 3.1, 900});
  }
  recorder.checkpointed(Step{5});
  const auto events = lines(directory.events());
  ASSERT_GE(events.size(), 3U);
  EXPECT_EQ(events[events.size() - 3].at("step"), 2);
  EXPECT_EQ(events[events.size() - 2].at("loss"), 3.1);
  EXPECT_EQ(events.back().at("event"), "checkpoint");
}

TEST_F(RunRecorderTest, StatusSaysHowARunHasEndedOnAFullDisk) {
  const RunDirectory directory = RunDirectory::create(run_, RunDirectory::Existing::refuse);
  RunRecorder recorder(directory, "abc", 1);
  recorder.training(Step{}, Step{300});
  ProcessReport report;
  report.host = "a-host";
  recorder.reports(std::vector<ProcessReport>(4, report));
  const FullDisk full(directory.status());
  Outcome outcome;
  outcome.code = base::ExitCode::storage_full;
  outcome.cause = "no space";
  recorder.ended(outcome);
  EXPECT_EQ(status().at("state"), "ended");
  EXPECT_EQ(status().at("outcome").at("cause"), "no space");
  EXPECT_FALSE(std::filesystem::exists(run_ / "status.json.next"));
}

}  // namespace
}  // namespace strait::run

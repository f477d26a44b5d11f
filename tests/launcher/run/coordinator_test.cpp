#include "launcher/run/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <future>
#include <limits>
#include <thread>

#include "framework/mutex.h"
#include "framework/store/store_error.h"
#include "launcher/base/backend.h"
#include "launcher/base/process_identity.h"
#include "tests/memory_links.h"
#include "tests/scratch_directory.h"

namespace strait::run {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Clock = std::chrono::steady_clock;
using store::Step;

auto RunEnded(base::ExitCode code, const testing::Matcher<std::string>& cause) {
  return AllOf(testing::Field(&Outcome::code, code), testing::Field(&Outcome::cause, cause));
}

// A scripted stage: sends and receives messages over its end of the control link.
class Script {
 public:
  Script(net::ProcessName name, std::unique_ptr<net::Link> link)
      : name_(name), link_(std::move(link)) {}

  void say(const StageMessage& message) { link_->send(format(message)); }
  void hello(const std::string& build = "b1") {
    say(Hello{name_, 1, "host-" + name_.text(), build});
  }
  void start() {
    hello();
    say(Ready{{{"link of " + name_.text(), "tcp://somewhere:" + std::to_string(name_.stage)}}});
    peers = hear<Peers>().endpoints;
  }
  void step(std::int64_t number) {
    StepDone done;
    done.step = Step{number};
    done.seconds = 0.01;
    done.targets = 1000;
    if (name_.stage == 1) done.loss = 1.0 / static_cast<double>(number);
    say(done);
  }
  void skipped_step(std::int64_t number) {
    StepDone done;
    done.step = Step{number};
    done.loss = std::numeric_limits<double>::quiet_NaN();
    done.targets = 1000;
    done.skipped = true;
    say(done);
  }
  void shard(std::int64_t step, std::uint32_t epoch = 0) {
    say(ShardsWritten{Step{step}, {{name_.text(), 1, "h"}}, epoch});
  }
  // Makes the second step and its checkpoint, the last, in this epoch.
  void end_behind_step_2(std::uint32_t epoch = 0) {
    step(2);
    shard(2, epoch);
    hear_committed();
    say(Ended{});
  }

  // The next decision of this kind about a checkpoint; skips other messages.
  CheckpointDecided hear_decided(bool dropped) {
    while (true) {
      const auto decided = hear<CheckpointDecided>();
      if (decided.dropped.has_value() == dropped) return decided;
    }
  }
  CheckpointDecided hear_committed() { return hear_decided(false); }
  CheckpointDecided hear_dropped() { return hear_decided(true); }

  // The next message of this type; skips others.
  template <class Message>
  Message hear() {
    const auto deadline = Clock::now() + 20s;
    while (true) {
      const auto frame = link_->receive_until(deadline);
      if (!frame) throw std::runtime_error("the coordinator said nothing");
      const CoordinatorMessage message = parse_coordinator_message(*frame);
      if (const auto* wanted = std::get_if<Message>(&message)) return *wanted;
    }
  }
  // Receives until the coordinator closes the link: a stage that hangs.
  void hang() {
    try {
      while (true) link_->receive();
    } catch (const net::LinkError&) {
    }
  }
  net::Link& link() { return *link_; }
  net::ProcessName name() const { return name_; }

  std::map<std::string, std::string> peers;

 private:
  net::ProcessName name_;
  std::unique_ptr<net::Link> link_;
};

// Everything that was observed, as text.
class Notes : public RunObserver {
 public:
  void connected(const Hello& hello) override { add("connected " + hello.process.text()); }
  void training(Step from, Step to) override {
    add("training " + std::to_string(store::number(from)) + " to " +
        std::to_string(store::number(to)));
  }
  void step(const StepLine& line) override {
    add("step " + std::to_string(store::number(line.step)));
  }
  void evaluated(const Evaluated&) override { add("evaluated"); }
  void checkpointed(Step step) override {
    add("checkpoint " + std::to_string(store::number(step)));
  }
  void checkpoint_failed(Step, const std::string& text) override { add("no checkpoint: " + text); }
  void event(const std::string& who, const Event& event) override { add(who + ": " + event.text); }
  void replicas_absent(const ReplicasAbsent& absent) override {
    add("absent " + std::to_string(absent.absent.front()));
  }
  void replica_left(const ReplicaLeft& gone) override {
    add("replica " + std::to_string(gone.replica) + " left: " + gone.why);
  }
  void rejoin_attempted(const RejoinAttempt& attempt) override {
    add("replica " + std::to_string(attempt.replica) + " returns " + attempt.failure);
  }
  void replica_joined(const ReplicaJoined& joined) override {
    add("replica " + std::to_string(joined.replica) + " joined at " +
        std::to_string(store::number(joined.step)));
  }
  void stopping(bool now) override { add(now ? "stopping now" : "stopping"); }
  void ended(const Outcome& outcome) override {
    add("ended " + std::to_string(number(outcome.code)));
  }
  std::vector<std::string> said;
  std::function<void(const std::string&)> on_add;

 private:
  void add(const std::string& text) {
    said.push_back(text);
    if (on_add) on_add(text);
  }
};

class CoordinatorTest : public testing::Test {
 protected:
  using Play = std::function<void(Script&)>;

  CoordinatorTest() {
    options_.build = "b1";
    options_.to = Step{2};
    options_.abort_timeout = 200ms;
    options_.commit = [this](Step step, const std::vector<store::ShardFile>& files) {
      if (commit_error_) throw store::StoreError(*commit_error_, "no room on the disk");
      committed_.emplace_back(store::number(step), files.size());
    };
  }
  ~CoordinatorTest() override { join(); }

  void stage(std::uint32_t index, Play play, std::unique_ptr<base::Process> process = nullptr) {
    play_as({index, 0}, std::move(play), std::move(process));
  }
  void stages(const Play& play) {
    stage(0, play);
    stage(1, play);
  }
  void play_as(net::ProcessName name, Play play, std::unique_ptr<base::Process> process = nullptr) {
    workers_.push_back(worker(name, std::move(play), std::move(process)));
  }
  WorkerHandle worker(net::ProcessName name, Play play,
                      std::unique_ptr<base::Process> process = nullptr) {
    auto [left, right] =
        memory_links(net::ProcessName::coordinator(), name, "control " + name.text());
    threads_.emplace_back([play = std::move(play), name, link = std::move(right)]() mutable {
      Script script(name, std::move(link));
      try {
        play(script);
      } catch (const net::LinkError&) {
        // The coordinator closed the link: the script ends.
      }
    });
    return {name, std::move(left), std::move(process), "key of " + name.text()};
  }
  Outcome run() {
    Outcome outcome;
    {
      Coordinator coordinator(std::move(workers_), options_, {&notes_});
      outcome = coordinator.run(stops_);
    }
    join();
    return outcome;
  }
  Outcome run_to_end() {
    Outcome outcome = run();
    EXPECT_EQ(outcome.code, base::ExitCode::done) << outcome.cause;
    return outcome;
  }
  // The run survives lost replicas. Once replica 1 has left, its rejoin is requested, and its
  // stages then run this script.
  void ask_for_replica_1(Play play) {
    options_.survives_lost_replicas = true;
    options_.rejoin_requests = [this, asked = std::vector<std::uint32_t>{1}]() mutable {
      const bool gone = std::ranges::any_of(notes_.said, [](const std::string& note) {
        return note.starts_with("replica 1 left") || note == "absent 1";
      });
      return gone ? std::exchange(asked, {}) : std::vector<std::uint32_t>{};
    };
    options_.start_replica = [this, play = std::move(play)](std::uint32_t replica,
                                                            const std::atomic<bool>&) {
      StartedReplica started;
      started.workers.push_back(worker({0, replica}, play));
      started.binds[{0, 0}] = {{"replica 0.0~0.1", "127.0.0.1"}};
      return started;
    };
  }
  // Replica 1 leaves and comes back; its stage and that of replica 0 bind these links for it. That
  // fails with this reason, and replica 0 trains on alone.
  void cancel_rejoin(const std::map<std::string, std::string>& theirs,
                     const std::map<std::string, std::string>& ours, const std::string& reason) {
    std::promise<void> away;
    notes_.on_add = [&](const std::string& note) {
      if (note.ends_with(reason)) away.set_value();
    };
    ask_for_replica_1([&](Script& me) {
      me.hello();
      me.say(Ready{theirs});
      me.hang();
    });
    play_as({0, 0}, [&](Script& me) {
      me.start();
      me.say(Ready{ours, me.hear<Admit>().number});
      EXPECT_EQ(away.get_future().wait_for(20s), std::future_status::ready);
      me.step(1);
      me.end_behind_step_2(1);
    });
    play_as({0, 1}, [](Script& me) { me.start(); });
    const Outcome outcome = run();
    EXPECT_EQ(outcome.code, base::ExitCode::done) << outcome.cause;
  }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  CoordinatorOptions options_;
  std::vector<WorkerHandle> workers_;
  std::vector<std::thread> threads_;
  std::atomic<int> stops_ = 0;
  Notes notes_;
  std::optional<store::StoreError::Kind> commit_error_;
  std::vector<std::pair<std::int64_t, std::size_t>> committed_;
};

void whole_run(Script& me) {
  me.start();
  me.step(1);
  me.end_behind_step_2();
}

TEST_F(CoordinatorTest, RunsFromFirstHelloToLastExit) {
  std::map<std::string, std::string> peers;
  stage(0, [&](Script& me) {
    whole_run(me);
    peers = me.peers;
  });
  stage(1, whole_run);
  const Outcome outcome = run_to_end();
  EXPECT_FALSE(outcome.stopped);
  EXPECT_TRUE(outcome.trained);
  EXPECT_EQ(outcome.step, Step{2});
  EXPECT_EQ(outcome.checkpoint, Step{2});
  EXPECT_THAT(peers, testing::SizeIs(2));
  EXPECT_EQ(peers["link of 1.0"], "tcp://somewhere:1");
  EXPECT_THAT(committed_, ElementsAre(std::pair<std::int64_t, std::size_t>(2, 2)));
  ASSERT_EQ(notes_.said.size(), 7U);
  EXPECT_EQ(notes_.said[2], "training 0 to 2");
  EXPECT_EQ(notes_.said[3], "step 1");
  EXPECT_EQ(notes_.said[4], "step 2");
  EXPECT_EQ(notes_.said[5], "checkpoint 2");
  EXPECT_EQ(notes_.said[6], "ended 0");
}

TEST_F(CoordinatorTest, AppliesChangesWhenAllHaveLoadedAndNoneTrains) {
  int ready = 0;
  int applied = 0;
  options_.apply_changes = [&] {
    ++applied;
    EXPECT_EQ(ready, 2);
    EXPECT_THAT(notes_.said, Not(Contains(HasSubstr("training"))));
  };
  Mutex mutex;
  const auto play = [&](Script& me) {
    me.hello();
    {
      const MutexLock lock(mutex);
      ++ready;
    }
    me.say(Ready{});
    me.hear<Peers>();
    EXPECT_EQ(applied, 1);
    me.step(1);
    me.end_behind_step_2();
  };
  stages(play);
  EXPECT_EQ(run().code, base::ExitCode::done);
  EXPECT_EQ(applied, 1);
}

TEST_F(CoordinatorTest, AppliesNothingWhenOneFailsToLoad) {
  bool applied = false;
  options_.apply_changes = [&] { applied = true; };
  stage(0, [](Script& me) {
    me.hello();
    me.say(Ready{});
    me.hear<Abort>();
  });
  stage(1, [](Script& me) {
    me.hello();
    me.say(Ended{base::ExitCode::corrupt, "cannot load"});
  });
  EXPECT_EQ(run().code, base::ExitCode::corrupt);
  EXPECT_FALSE(applied);
}

TEST_F(CoordinatorTest, ChangesThatFailEndRunBeforeTraining) {
  options_.apply_changes = [] {
    throw store::StoreError(store::StoreError::Kind::storage_full, "no room for plan.json");
  };
  const auto play = [](Script& me) {
    me.hello();
    me.say(Ready{});
    EXPECT_THAT(me.hear<Abort>().text, HasSubstr("no room for plan.json"));
  };
  stages(play);
  EXPECT_THAT(run(), RunEnded(base::ExitCode::storage_full, HasSubstr("no room for plan.json")));
  EXPECT_THAT(notes_.said, Not(Contains(HasSubstr("training"))));
}

// A host that relays a link was lost meanwhile.
TEST_F(CoordinatorTest, LinksThatCannotBeRoutedEndRunBeforeTraining) {
  options_.locate_endpoints = [](const auto&) -> std::map<std::string, std::string> {
    throw base::UserError(base::ExitCode::peer_lost, "host c is not connected");
  };
  stage(0, [](Script& me) {
    me.hello();
    me.say(Ready{});
    EXPECT_THAT(me.hear<Abort>().text, HasSubstr("host c is not connected"));
  });
  const Outcome outcome = run();
  EXPECT_EQ(outcome.code, base::ExitCode::peer_lost);
  EXPECT_FALSE(outcome.trained);
  EXPECT_THAT(notes_.said, Not(Contains(HasSubstr("training"))));
}

TEST_F(CoordinatorTest, FailedStageEndsRunAsRootCause) {
  Abort heard;
  stage(0, [&](Script& me) {
    me.start();
    heard = me.hear<Abort>();
  });
  stage(1, [](Script& me) {
    me.start();
    me.say(Ended{base::ExitCode::numeric, "the loss of step 1 is not a number"});
  });
  const Outcome outcome = run();
  EXPECT_EQ(outcome.code, base::ExitCode::numeric);
  EXPECT_EQ(outcome.culprit, (net::ProcessName{1, 0}));
  EXPECT_EQ(outcome.host, "host-1.0");
  EXPECT_EQ(outcome.cause, "stage 1.0 (host host-1.0): the loss of step 1 is not a number");
  EXPECT_EQ(heard.code, base::ExitCode::numeric);
  EXPECT_EQ(heard.origin, "stage 1.0 (host host-1.0)");
}

// Every process has the same decisions: one sentence, whichever of them is heard first. Five are
// the last of this run, whose end would be saved.
TEST_F(CoordinatorTest, FiveSkippedStepsInARowEndRunWithOneSentence) {
  options_.to = Step{7};
  const auto play = [](Script& me) {
    me.start();
    me.skipped_step(1);
    me.step(2);
    for (const std::int64_t number : {3, 4, 5, 6, 7}) me.skipped_step(number);
    me.shard(7);
    me.say(Ended{});
    me.hang();
  };
  stages(play);
  const Outcome outcome = run();
  EXPECT_EQ(outcome.code, base::ExitCode::numeric);
  EXPECT_EQ(outcome.cause,
            "the loss or a gradient was not finite for 5 steps in a row, the last being step 7 "
            "(loss nan, gradient norm nan); they changed no weight");
  EXPECT_THAT(outcome.followers, IsEmpty());
  EXPECT_THAT(outcome.log_tail, IsEmpty());
  EXPECT_EQ(outcome.step, Step{7});
  EXPECT_THAT(committed_, IsEmpty());
}

TEST_F(CoordinatorTest, SaysThatLossHasDivergedWhenRunEndsWell) {
  options_.losses = LossHistory(1.2);  // of a guess; the loss of step k is 1 / k
  std::vector<std::optional<Step>> good;
  options_.on_loss = [&](const LossHistory& losses) { good.push_back(losses.good()); };
  const auto play = [](Script& me) {
    me.start();
    me.step(1);
    me.shard(1);
    me.hear_committed();
    if (me.name().stage == 0) me.say(Evaluated{Step{2}, 40, 1000});
    me.end_behind_step_2();
  };
  stages(play);
  EXPECT_EQ(run().code, base::ExitCode::done);
  EXPECT_THAT(notes_.said,
              Contains(AllOf(HasSubstr("the launcher: the loss has diverged: it is 40"),
                             HasSubstr("; it was "))));
  EXPECT_EQ(good.front(), std::nullopt);  // as training begins, before anything is pruned
  EXPECT_THAT(good, Contains(std::optional(Step{0})));
  EXPECT_THAT(good, Not(Contains(std::optional(Step{2}))));
}

TEST_F(CoordinatorTest, LostPeerIsCauseOnlyWithoutBetterFinding) {
  stage(0, [](Script& me) {
    me.start();
    me.say(Ended{base::ExitCode::peer_lost, "boundary 0>1: nothing received from stage 1.0"});
    me.hear<Abort>();
  });
  stage(1, [](Script& me) {
    me.start();
    me.hear<Abort>();  // so that its own messages arrive after it
    me.say(Ended{base::ExitCode::out_of_memory, "out of memory"});
  });
  const Outcome outcome = run();
  EXPECT_EQ(outcome.code, base::ExitCode::out_of_memory);
  EXPECT_EQ(outcome.culprit, (net::ProcessName{1, 0}));
  EXPECT_THAT(outcome.followers, ElementsAre(HasSubstr("boundary 0>1: nothing received")));
}

TEST_F(CoordinatorTest, RefusesOtherBuild) {
  stage(0, [](Script& me) { me.start(); });
  stage(1, [](Script& me) {
    me.hello("b2");
    me.hear<Abort>();
  });
  EXPECT_THAT(run(), RunEnded(base::ExitCode::mismatch,
                              AllOf(HasSubstr("build b2"), HasSubstr("build b1"))));
}

TEST_F(CoordinatorTest, ReportsWorkerThatNeverConnects) {
  options_.limits.start = 100ms;
  stage(0, [](Script& me) { me.hang(); });
  EXPECT_THAT(run(), RunEnded(base::ExitCode::stalled, HasSubstr("stage 0.0 did not connect")));
}

TEST_F(CoordinatorTest, SilentWorkerIsRootCause) {
  options_.limits.silence = 2s;  // the other one sends a hundred messages in it
  stage(0, [](Script& me) {
    me.start();
    try {
      while (true) {  // like a healthy stage, only faster
        me.say(Progress{});
        if (me.link().receive_until(Clock::now() + 20ms)) return;
      }
    } catch (const net::LinkError&) {
    }
  });
  stage(1, [](Script& me) {
    me.start();
    me.hang();
  });
  const Outcome outcome = run();
  EXPECT_EQ(outcome.code, base::ExitCode::stalled);
  EXPECT_EQ(outcome.culprit, (net::ProcessName{1, 0}));
  EXPECT_THAT(outcome.cause, HasSubstr("stage 1.0 (host host-1.0) has sent nothing for "));
}

TEST_F(CoordinatorTest, FirstStopFinishesAndSavesStep) {
  options_.to = Step{1000};
  const auto play = [](Script& me) {
    me.start();
    me.step(1);
    EXPECT_TRUE(me.hear<AfterStep>().stop);
    me.end_behind_step_2();
  };
  stages(play);
  notes_.on_add = [this](const std::string& text) {
    if (text == "step 1") stops_ = 1;
  };
  const Outcome outcome = run_to_end();
  EXPECT_TRUE(outcome.stopped);
  EXPECT_EQ(outcome.step, Step{2});
  EXPECT_EQ(outcome.checkpoint, Step{2});
  EXPECT_THAT(notes_.said, Contains("stopping"));
}

// The stages end it, all at the same step, and nobody has asked for it.
TEST_F(CoordinatorTest, SaysWhyEvaluationsHaveEndedTheRun) {
  options_.to = Step{1000};
  options_.stop_when = {1, 0};
  const auto play = [](Script& me) {
    me.start();
    me.step(1);
    if (me.name().stage == 0) {
      me.say(Evaluated{Step{1}, 2, 1000});
      me.say(Evaluated{Step{2}, 2.5, 1000});
    }
    me.end_behind_step_2();
  };
  stages(play);
  const Outcome outcome = run_to_end();
  EXPECT_FALSE(outcome.stopped);
  EXPECT_EQ(outcome.early,
            "the evaluation loss was not better than the 2 of step 1 for 1 evaluation");
  EXPECT_THAT(notes_.said, Contains("the launcher: " + outcome.early));
}

TEST_F(CoordinatorTest, SecondStopEndsRunAtOnce) {
  const auto play = [](Script& me) {
    me.start();
    me.step(1);
    me.hear<Abort>();
  };
  stages(play);
  notes_.on_add = [this](const std::string& text) {
    if (text == "step 1") stops_ = 1;
    if (text == "stopping") stops_ = 2;
  };
  const Outcome outcome = run();
  EXPECT_EQ(outcome.code, base::ExitCode::interrupted);
  EXPECT_TRUE(outcome.stopped);
  EXPECT_FALSE(outcome.culprit.has_value());
  EXPECT_THAT(notes_.said, Contains("stopping now"));
}

TEST_F(CoordinatorTest, StopBeforeTrainingEndsRunAtOnce) {
  stops_ = 1;
  stage(0, [](Script& me) {
    me.hello();
    me.hear<Abort>();
  });
  EXPECT_EQ(run().code, base::ExitCode::interrupted);
}

// The remaining replicas when replica 1 leaves: their shards of a checkpoint are dropped, and they
// write them again.
void outlive(Script& me) {
  me.start();
  me.step(1);
  me.shard(1);
  const auto dropped = me.hear_dropped();
  EXPECT_TRUE(dropped.again);
  EXPECT_EQ(dropped.epoch, 0U);
  me.shard(1, 1);
  EXPECT_EQ(me.hear_committed().epoch, 1U);
  me.step(2);
  me.say(Ended{});
}

TEST_F(CoordinatorTest, RunContinuesWithoutLostReplica) {
  options_.survives_lost_replicas = true;
  std::atomic<int> written = 0;
  notes_.on_add = [&](const std::string& note) {
    if (note == "step 1") written = 1;
  };
  play_as({0, 0}, outlive);
  play_as({0, 2}, outlive);
  play_as({0, 1}, [&](Script& me) {
    me.start();
    me.step(1);
    while (written == 0) std::this_thread::yield();
  });
  EXPECT_EQ(run_to_end().step, Step{2});
  EXPECT_THAT(notes_.said, Contains(HasSubstr("replica 1 left: stage 0.1")));
  EXPECT_THAT(committed_, ElementsAre(std::pair<std::int64_t, std::size_t>(1, 2)));
}

TEST_F(CoordinatorTest, ReplicaLeavesOnRequestUnlessLast) {
  options_.survives_lost_replicas = true;
  std::vector<std::uint32_t> asked = {1, 0};
  options_.leave_requests = [&] { return std::exchange(asked, {}); };
  play_as({0, 0}, [](Script& me) {
    me.start();
    EXPECT_EQ(me.hear<Regroup>().replicas, std::vector<std::uint32_t>{0});
    me.step(1);
    me.say(Ended{});
  });
  play_as({0, 1}, [](Script& me) {
    me.start();
    me.hear<Abort>();
    me.hang();
  });
  EXPECT_EQ(run_to_end().step, Step{1});
}

// Reports lost links to these replicas and continues with the remaining ones.
std::function<void(Script&)> go_on_without(const std::vector<std::uint32_t>& lost,
                                           const std::vector<std::uint32_t>& left) {
  return [=](Script& me) {
    me.start();
    for (const std::uint32_t replica : lost) me.say(LostReplica{replica, "its link is dead"});
    EXPECT_EQ(me.hear<Regroup>().replicas, left);
    me.step(1);
    me.end_behind_step_2(1);
  };
}

// Reports lost links and is evicted.
std::function<void(Script&)> be_left_behind(const std::vector<std::uint32_t>& lost) {
  return [=](Script& me) {
    me.start();
    for (const std::uint32_t replica : lost) me.say(LostReplica{replica, "its link is dead"});
    EXPECT_EQ(me.hear<Abort>().code, base::ExitCode::peer_lost);
    me.hang();
  };
}

TEST_F(CoordinatorTest, EvictsOneOfTwoDisconnectedReplicas) {
  options_.survives_lost_replicas = true;
  play_as({0, 0}, go_on_without({1}, {0}));
  play_as({0, 1}, be_left_behind({0}));
  EXPECT_EQ(run_to_end().step, Step{2});
  EXPECT_THAT(notes_.said, Contains(HasSubstr("replica 1 left: stage 0.0")));
}

TEST_F(CoordinatorTest, EvictsOnlyReplicaCutOffFromAll) {
  options_.survives_lost_replicas = true;
  play_as({0, 0}, go_on_without({2}, {0, 1}));
  play_as({0, 1}, go_on_without({2}, {0, 1}));
  play_as({0, 2}, be_left_behind({0, 1}));
  EXPECT_EQ(run_to_end().step, Step{2});
  EXPECT_THAT(notes_.said, testing::Not(Contains(HasSubstr("replica 0 left"))));
  EXPECT_THAT(notes_.said, testing::Not(Contains(HasSubstr("replica 1 left"))));
  EXPECT_THAT(notes_.said, Contains(HasSubstr("replica 2 left: stage 0.")));
}

// Waits for replica 1 until that is evicted, and reports progress only once a second after that.
void wait_for_replica_1(Script& me) {
  me.start();
  Progress waiting;
  for (waiting.finished_actions = 1; waiting.finished_actions < 3; ++waiting.finished_actions) {
    waiting.waits_on = net::ProcessName{0, 1};
    me.say(waiting);
  }
  EXPECT_EQ(me.hear<Regroup>().replicas, (std::vector<std::uint32_t>{0, 2}));
  EXPECT_FALSE(me.link().receive_until(Clock::now() + 200ms));
  me.step(1);
  me.end_behind_step_2(1);
}

TEST_F(CoordinatorTest, EvictionRestartsProgressTimeoutOfOthers) {
  options_.survives_lost_replicas = true;
  options_.limits.progress = 400ms;
  play_as({0, 0}, wait_for_replica_1);
  play_as({0, 2}, wait_for_replica_1);
  play_as({0, 1}, [](Script& me) {
    me.start();
    Progress stuck;
    for (stuck.finished_actions = 1; stuck.finished_actions < 3; ++stuck.finished_actions) {
      me.say(stuck);
    }
    EXPECT_EQ(me.hear<Abort>().code, base::ExitCode::stalled);
    me.hang();
  });
  EXPECT_EQ(run_to_end().step, Step{2});
  EXPECT_THAT(notes_.said,
              Contains(HasSubstr("replica 1 left: stage 0.1 (host host-0.1): no progress")));
}

// Trains alone until the other replica rejoins.
void let_in_and_go_on(Script& me) {
  me.start();
  EXPECT_EQ(me.hear<Regroup>().epoch, 1U);
  const auto admit = me.hear<Admit>();
  EXPECT_EQ(admit.replica, 1U);
  EXPECT_EQ(admit.keys, (std::map<std::string, std::string>{{"0.1", "key of 0.1"}}));
  EXPECT_EQ(admit.binds, (std::map<std::string, std::string>{{"replica 0.0~0.1", "127.0.0.1"}}));
  // The answer to a cancelled Admit must be ignored.
  me.say(Ready{{{"replica 0.0~0.1", "tcp://former:1"}}, admit.number - 1});
  me.say(Ready{{{"replica 0.0~0.1", "tcp://anew:1"}}, admit.number});
  EXPECT_EQ(me.hear<Peers>().endpoints.at("consensus 0.0~0.1"), "tcp://back:2");
  EXPECT_EQ(me.hear<AfterStep>().save, 1U);
  me.step(1);
  me.shard(1, 1);
  EXPECT_EQ(me.hear<Regroup>().replicas, (std::vector<std::uint32_t>{0, 1}));
  const auto committed = me.hear_committed();
  EXPECT_EQ(committed.epoch, 1U);
  EXPECT_EQ(committed.arrives, 1U);
  EXPECT_EQ(committed.next_epoch, 2U);
  me.step(2);
  me.shard(2, 2);
  EXPECT_EQ(me.hear_committed().arrives, std::nullopt);
  me.say(Ended{});
}

TEST_F(CoordinatorTest, ReplicaRejoinsAtCheckpoint) {
  ask_for_replica_1([](Script& me) {
    me.hello();
    me.say(Ready{{{"consensus 0.0~0.1", "tcp://back:2"}}});
    EXPECT_EQ(me.hear<Peers>().endpoints.at("replica 0.0~0.1"), "tcp://anew:1");
    EXPECT_EQ(me.hear_committed().step, Step{1});
    me.end_behind_step_2(2);
  });
  play_as({0, 0}, let_in_and_go_on);
  play_as({0, 1}, [](Script& me) { me.start(); });
  const Outcome outcome = run_to_end();
  EXPECT_EQ(outcome.step, Step{2});
  EXPECT_THAT(notes_.said, Contains("replica 1 joined at 1"));
  EXPECT_EQ(outcome.joined, std::set<std::uint32_t>{1});
  EXPECT_THAT(committed_, ElementsAre(std::pair<std::int64_t, std::size_t>(1, 1),
                                      std::pair<std::int64_t, std::size_t>(2, 2)));
}

TEST_F(CoordinatorTest, AbsentReplicaJoinsLater) {
  ask_for_replica_1([](Script& me) {
    me.hello();
    me.say(Ready{{{"consensus 0.0~0.1", "tcp://back:2"}}});
    EXPECT_EQ(me.hear_committed().step, Step{1});
    me.end_behind_step_2(1);
  });
  play_as({0, 0}, [](Script& me) {
    me.start();
    me.say(Ready{{}, me.hear<Admit>().number});
    me.hear<AfterStep>();
    me.step(1);
    me.shard(1);
    const auto committed = me.hear_committed();
    EXPECT_EQ(committed.epoch, 0U);
    EXPECT_EQ(committed.arrives, 1U);
    EXPECT_EQ(committed.next_epoch, 1U);
    me.end_behind_step_2(1);
  });
  workers_.push_back({{0, 1}, nullptr, nullptr, ""});
  run_to_end();
  EXPECT_THAT(notes_.said, Contains("absent 1"));
  EXPECT_THAT(notes_.said, Contains("step 1"));
  EXPECT_THAT(notes_.said, Contains("replica 1 joined at 1"));
  EXPECT_THAT(committed_, ElementsAre(std::pair<std::int64_t, std::size_t>(1, 1),
                                      std::pair<std::int64_t, std::size_t>(2, 2)));
}

TEST_F(CoordinatorTest, FailedRejoinIsCancelledAndRunContinues) {
  std::promise<void> away;
  notes_.on_add = [&](const std::string& note) {
    if (note.ends_with("no room for it")) away.set_value();
  };
  ask_for_replica_1([](Script& me) {
    me.hello();
    me.say(Ended{base::ExitCode::mismatch, "no room for it"});
  });
  play_as({0, 0}, [&](Script& me) {
    me.start();
    EXPECT_EQ(me.hear<Regroup>().epoch, 1U);
    EXPECT_EQ(away.get_future().wait_for(20s), std::future_status::ready);
    me.step(1);
    me.shard(1, 1);
    EXPECT_EQ(me.hear_committed().arrives, std::nullopt);
    me.say(Ended{});
  });
  play_as({0, 1}, [](Script& me) { me.start(); });
  run_to_end();
}

TEST_F(CoordinatorTest, RejoinWhoseLinksCannotBeRoutedIsCancelledAndRunContinues) {
  options_.locate_endpoints = [first = true](std::map<std::string, std::string> endpoints) mutable {
    if (std::exchange(first, false)) return endpoints;
    throw base::UserError(base::ExitCode::peer_lost, "host c is not connected");
  };
  cancel_rejoin({}, {}, "host c is not connected");
}

TEST_F(CoordinatorTest, RejoinThatBindsALinkTwiceIsCancelledAndRunContinues) {
  const std::string link = "replica 0.0~0.1";
  cancel_rejoin({{link, "tcp://back:1"}}, {{link, "tcp://anew:1"}},
                "link replica 0.0~0.1 was bound by two processes");
}

TEST_F(CoordinatorTest, EndOfRunGivesUpAReplicaThatIsStillStarting) {
  std::promise<void> begun;
  bool was_given_up = false;
  ask_for_replica_1([](Script&) {});
  options_.start_replica = [&](std::uint32_t, const std::atomic<bool>& given_up) -> StartedReplica {
    begun.set_value();
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (!given_up && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    was_given_up = given_up;
    throw base::UserError(base::ExitCode::interrupted, "given up");
  };
  play_as({0, 0}, [&](Script& me) {
    me.start();
    EXPECT_EQ(begun.get_future().wait_for(20s), std::future_status::ready);
    me.step(1);
    me.end_behind_step_2();
  });
  workers_.push_back({{0, 1}, nullptr, nullptr, ""});
  run_to_end();
  EXPECT_TRUE(was_given_up);
}

TEST_F(CoordinatorTest, ErrorCommonToAllReplicasEndsRun) {
  options_.survives_lost_replicas = true;
  play_as({0, 0}, [](Script& me) {
    me.start();
    me.say(Ended{base::ExitCode::mismatch, "replicas 0 and 1 hold different bits of wte.weight"});
  });
  play_as({0, 1}, [](Script& me) {
    me.start();
    EXPECT_EQ(me.hear<Abort>().code, base::ExitCode::mismatch);
  });
  EXPECT_EQ(run().code, base::ExitCode::mismatch);
}

TEST_F(CoordinatorTest, FailedCommitDropsCheckpointAndTrainingContinues) {
  const auto play = [this](Script& me) {
    me.start();
    me.step(1);
    me.shard(1);
    EXPECT_THAT(*me.hear_dropped().dropped, HasSubstr("no room on the disk"));
    me.end_behind_step_2();
  };
  commit_error_ = store::StoreError::Kind::storage_full;
  notes_.on_add = [this](const std::string& text) {
    if (text.rfind("no checkpoint", 0) == 0) commit_error_.reset();
  };
  stages(play);
  EXPECT_EQ(run_to_end().checkpoint, Step{2});
}

TEST_F(CoordinatorTest, FailedShardDropsCheckpoint) {
  stage(0, [](Script& me) {
    me.start();
    me.shard(1);
    EXPECT_THAT(*me.hear_dropped().dropped, HasSubstr("stage 1.0 (host host-1.0): disk full"));
    me.say(Ended{});
  });
  stage(1, [](Script& me) {
    me.start();
    me.say(ShardsWritten{.step = Step{1},
                         .failed = true,
                         .problem = "disk full",
                         .code = base::ExitCode::storage_full});
    me.hear_dropped();
    me.say(Ended{});
  });
  const Outcome outcome = run();
  // It was the last one, so the end of training is not saved.
  EXPECT_EQ(outcome.code, base::ExitCode::storage_full);
  EXPECT_THAT(outcome.cause, HasSubstr("its last checkpoint failed"));
  EXPECT_THAT(committed_, IsEmpty());
}

TEST_F(CoordinatorTest, FailedPruningNeitherDropsCheckpointNorChangesExitCode) {
  const std::filesystem::path old = "checkpoints/step-0";
  int prunes = 0;
  options_.prune = [&](store::PruneTime) -> store::Pruned {
    if (++prunes == 3) throw store::StoreError(store::StoreError::Kind::storage_io, "list failed");
    return {{}, {{old, "cannot remove step-0: busy"}}};
  };
  const auto play = [](Script& me) {
    me.start();
    me.step(1);
    me.shard(1);
    EXPECT_EQ(me.hear_committed().step, Step{1});
    me.end_behind_step_2();
  };
  stages(play);
  EXPECT_EQ(run_to_end().checkpoint, Step{2});
  EXPECT_EQ(prunes, 3);  // at the start and after each commit
  EXPECT_EQ(std::ranges::count_if(
                notes_.said, [](const auto& note) { return note.find("step-0") != note.npos; }),
            1);
  EXPECT_THAT(notes_.said, Contains(HasSubstr("list failed")));
}

TEST_F(CoordinatorTest, FailedLastCommitKeepsItsExitCode) {
  commit_error_ = store::StoreError::Kind::bad_input;  // a folder was removed, say
  const auto play = [](Script& me) {
    me.start();
    me.shard(1);
    me.hear_dropped();
    me.say(Ended{});
  };
  stages(play);
  EXPECT_EQ(run().code, base::ExitCode::storage_io);
}

TEST_F(CoordinatorTest, ThreeFailedCheckpointsInARowEndRun) {
  commit_error_ = store::StoreError::Kind::storage_full;
  stage(0, [](Script& me) {
    me.start();
    for (int step = 1; step <= 3; ++step) me.shard(step);
    me.hear<Abort>();
  });
  EXPECT_THAT(run(), RunEnded(base::ExitCode::storage_full, HasSubstr("3 checkpoints in a row")));
}

TEST_F(CoordinatorTest, MalformedMessageEndsRun) {
  stage(0, [](Script& me) {
    me.hello();
    me.link().send(net::Frame(3, std::byte{'?'}));
    me.hang();
  });
  EXPECT_THAT(run(), RunEnded(base::ExitCode::internal, HasSubstr("not JSON")));
}

TEST_F(CoordinatorTest, FirstMessageMustBeHelloWithOwnName) {
  stage(0, [](Script& me) {
    me.say(Ended{});
    me.hang();
  });
  EXPECT_THAT(run().cause, HasSubstr("its first message is not Hello"));
  stage(0, [](Script& me) {
    me.say(Hello{{7, 0}, 1, "h", "b1"});
    me.hang();
  });
  EXPECT_THAT(run().cause, HasSubstr("unexpected Hello of stage 7.0"));
}

TEST_F(CoordinatorTest, ObserverErrorIsThrownAfterProcessesEnded) {
  notes_.on_add = [](const std::string& text) {
    if (text == "step 1") throw std::runtime_error("the observer broke");
  };
  stage(0, [](Script& me) {
    me.start();
    me.step(1);
    me.hang();
  });
  EXPECT_THROW(run(), std::runtime_error);
}

// On a host that its people can take out of the run; the script of the stage says when it has
// ended.
struct HostOfStage {
  std::atomic<bool> leaves = false;
  std::atomic<bool> stage_ended = false;
  std::atomic<bool> agent_ended = false;
};

class StageOnHost : public base::Process {
 public:
  explicit StageOnHost(HostOfStage& host) : host_(host) {}
  int pid() const override { return 1; }
  std::string host() const override { return "beta"; }
  std::optional<base::ExitStatus> exit_status() override {
    if (host_.agent_ended) return base::ExitStatus{{}, {}, "its host beta is gone"};
    if (host_.stage_ended) return base::ExitStatus{0, {}, ""};
    return std::nullopt;
  }
  std::optional<base::ExitStatus> wait_until(Clock::time_point) override { return exit_status(); }
  void kill() override { host_.stage_ended = true; }
  bool host_leaves() override { return host_.leaves; }
  void parent_ended() override { host_.agent_ended = true; }
  std::vector<std::string> log_tail(std::size_t) const override { return {}; }

 private:
  HostOfStage& host_;
};

TEST_F(CoordinatorTest, SavesBeforeItEndsWhenHostLeaves) {
  options_.to = Step{9};
  HostOfStage beta;
  const auto play = [](Script& me) {
    me.step(1);
    EXPECT_TRUE(me.hear<AfterStep>().stop);
    me.step(2);
    me.shard(2);
    me.hear_committed();
    me.say(Ended{});
  };
  stage(0, [&](Script& me) {
    me.start();
    play(me);
  });
  stage(
      1,
      [&](Script& me) {
        me.start();
        beta.leaves = true;
        play(me);
        beta.stage_ended = true;
      },
      std::make_unique<StageOnHost>(beta));
  const Outcome outcome = run();
  EXPECT_EQ(outcome.code, base::ExitCode::peer_lost);
  EXPECT_FALSE(outcome.stopped);  // so that it may restart on other hosts
  EXPECT_THAT(outcome.cause, HasSubstr("host beta leaves the run"));
  EXPECT_EQ(outcome.host, "beta");
  EXPECT_THAT(outcome.left, ElementsAre("beta"));
  EXPECT_EQ(outcome.checkpoint, Step{2});
}

TEST_F(CoordinatorTest, EvictsReplicaOfHostThatLeaves) {
  options_.survives_lost_replicas = true;
  HostOfStage beta;
  std::promise<void> away;
  notes_.on_add = [&](const std::string& note) {
    if (note.starts_with("replica 1 left")) away.set_value();
  };
  play_as({0, 0}, [&](Script& me) {
    me.start();
    EXPECT_EQ(away.get_future().wait_for(20s), std::future_status::ready);
    me.step(1);
    me.end_behind_step_2(1);
  });
  play_as(
      {0, 1},
      [&](Script& me) {
        me.start();
        beta.leaves = true;
        me.hang();
      },
      std::make_unique<StageOnHost>(beta));
  const Outcome outcome = run_to_end();
  EXPECT_THAT(outcome.left, ElementsAre("beta"));
  EXPECT_THAT(notes_.said, Contains(HasSubstr("replica 1 left: host beta leaves the run")));
}

TEST_F(CoordinatorTest, HostThatLeavesWhileRunStartsEndsIt) {
  HostOfStage beta;
  beta.leaves = true;
  stage(0, [](Script& me) { me.hear<Abort>(); });
  stage(
      1, [](Script& me) { me.hang(); }, std::make_unique<StageOnHost>(beta));
  EXPECT_THAT(run(), RunEnded(base::ExitCode::peer_lost, HasSubstr("host beta leaves the run")));
}

TEST_F(CoordinatorTest, OrphanedStageShowsThatItsAgentHasEnded) {
  HostOfStage beta;
  stage(0, [](Script& me) {
    me.start();
    me.hear<Abort>();
  });
  stage(
      1,
      [](Script& me) {
        me.start();
        me.say(Ended{base::ExitCode::peer_lost, "", true});
        me.hang();
      },
      std::make_unique<StageOnHost>(beta));
  EXPECT_THAT(run(), RunEnded(base::ExitCode::peer_lost,
                              HasSubstr("stage 1.0 (host beta): its host beta is gone")));
}

// With real processes in addition to the scripted messages.
class CoordinatorProcessTest : public CoordinatorTest {
 protected:
  std::unique_ptr<base::Process> shell(const std::string& script) {
    return base::LocalBackend().start({net::ProcessName{0, 0},
                                       0,
                                       {"/bin/sh", "-c", script},
                                       "{}",
                                       scratch_ / (std::to_string(logs_++) + ".log")});
  }
  ScratchDirectory scratch_;
  int logs_ = 0;
};

TEST_F(CoordinatorProcessTest, ReportsKilledStageWithLog) {
  auto victim =
      shell("i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo line $i; done; echo up; sleep 1000");
  const int pid = victim->pid();
  stage(
      0,
      [](Script& me) {
        me.start();
        me.hear<Abort>();
      },
      shell("cat"));
  stage(
      1,
      [&](Script& me) {
        me.start();
        while (ScratchDirectory::read(scratch_ / "0.log").find("up") == std::string::npos) {
          me.link().receive_until(Clock::now() + 5ms);
        }
        ::kill(pid, SIGKILL);
        me.hang();
      },
      std::move(victim));
  options_.abort_timeout = 100ms;  // the other one ignores Abort: it is only cat
  const Outcome outcome = run();
  EXPECT_EQ(outcome.code, base::ExitCode::peer_lost);
  EXPECT_EQ(outcome.culprit, (net::ProcessName{1, 0}));
  EXPECT_THAT(outcome.cause,
              HasSubstr(fmt::format("stage 1.0 (host {}): killed by signal 9", base::own_host())));
  ASSERT_EQ(outcome.log_tail.size(), 20U);
  EXPECT_EQ(outcome.log_tail.back(), "up");
  EXPECT_THAT(outcome.followers, IsEmpty());
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST_F(CoordinatorProcessTest, EarlyExitIsFailure) {
  stage(
      0, [](Script& me) { me.hang(); }, shell("exit 0"));
  const Outcome early = run();
  EXPECT_EQ(early.code, base::ExitCode::internal);
  EXPECT_THAT(early.cause, HasSubstr("before its work was done"));
  stage(
      0, [](Script& me) { me.hang(); }, shell("exit 10"));
  const Outcome refused = run();
  EXPECT_EQ(refused.code, base::ExitCode::bad_input);
  EXPECT_THAT(refused.cause, HasSubstr("ended with code 10 (bad input)"));
  stage(
      0, [](Script& me) { me.hang(); },
      shell("echo '2026-01-01 00:00:00.000 error no more threads'; echo at last; exit 10"));
  EXPECT_THAT(run().cause, EndsWith("ended with code 10 (bad input): no more threads"));
}

TEST_F(CoordinatorProcessTest, FailedMessageIsPreferredToExitCode) {
  stage(
      0,
      [](Script& me) {
        me.say(Ended{base::ExitCode::bad_input, "config.json is missing"});
        me.hang();
      },
      shell("exit 10"));
  EXPECT_THAT(run().cause, HasSubstr("config.json is missing"));
}

// All that the run was for is on disk by then. Its end may be noticed before its last message.
TEST_F(CoordinatorProcessTest, ProcessThatCrashesAfterItsWorkFailsNoRun) {
  auto crashing = shell("sleep 1000");
  const int pid = crashing->pid();
  stage(
      0,
      [pid](Script& me) {
        me.start();
        me.step(1);
        me.step(2);
        me.shard(2);
        me.hear_committed();
        ::kill(pid, SIGKILL);
        me.say(Ended{});
        me.hang();
      },
      std::move(crashing));
  run_to_end();
  EXPECT_THAT(notes_.said, Contains(HasSubstr("killed by signal 9")));
}

TEST_F(CoordinatorProcessTest, KillsLingeringProcessAfterSuccess) {
  options_.exit_timeout = 100ms;
  auto lingering = shell("sleep 1000");
  const int pid = lingering->pid();
  stage(
      0,
      [](Script& me) {
        whole_run(me);
        me.hang();
      },
      std::move(lingering));
  run_to_end();
  EXPECT_THAT(notes_.said, Contains(HasSubstr("did not exit after their work was done")));
  EXPECT_NE(::kill(pid, 0), 0);
}

}  // namespace
}  // namespace strait::run

#pragma once

#include "framework/sync/sync_rounds.h"
#include "stages/step_agreement.h"
#include "stages/step_consensus.h"
#include "tests/interleavings/simulation.h"

namespace strait::interleavings {

// Where a replica joins.
struct JoinPoint {
  store::Step step{};
  sync::Rejoin rejoin;
};

// A stage process without a model: what StageLoop, ReplicaSync and StepDecider do with the sync
// engine, the consensus and the agreement, which are the product's. On the first fiber of its
// process.
class Trainer {
 public:
  Trainer(Simulation& simulation, int index, std::optional<JoinPoint> join);
  void run();

 private:
  using Links = std::vector<std::unique_ptr<net::Link>>;
  struct CheckpointResult {
    bool complete = true;
    std::optional<sync::Rejoin> rejoin = std::nullopt;
  };

  Links make_links(Wire::Use use);
  std::unique_ptr<SimulatedLink> make_pipeline_link(std::uint32_t other_stage);
  void receive_state(const sync::Rejoin& rejoin);
  void send_state(std::uint32_t replica);
  void start_rounds();
  bool is_first() const { return process_.name.stage == 0; }

  void train(store::Step step);
  void compute_gradient(store::Step step);
  void update(store::Step step);
  void save(store::Step steps);
  CheckpointResult write(store::Step steps);
  void add_member(const sync::Rejoin& rejoin, store::Step steps);
  void record(store::Step step);

  stages::StepReport report(const stages::Phase& phase);
  stages::StepDecision exchange(const stages::StepReport& report);
  stages::StepDecision decide(const stages::StepReport& report);
  void regroup(std::uint32_t epoch, bool complete);
  std::uint64_t model_hash() const;
  std::uint64_t contributions() const;

  Simulation& simulation_;
  const Case& case_;
  Process& process_;
  const int index_;
  const std::optional<JoinPoint> join_;
  sync::Layout layout_;
  std::vector<float> weights_, gradient_, first_moment_, second_moment_;
  std::unique_ptr<sync::SyncMethod> method_;
  sync::Slots slots_;
  sync::Membership members_;
  std::unique_ptr<SimulatedLink> above_;
  std::unique_ptr<SimulatedLink> below_;
  stages::WaitClock waits_;
  std::unique_ptr<stages::StepConsensus> consensus_;
  std::unique_ptr<sync::SyncRounds> rounds_;
  stages::StepAgreement agreement_;
};

}  // namespace strait::interleavings

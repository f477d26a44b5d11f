#pragma once

#include "framework/sync/methods.h"
#include "framework/sync/sync_rounds.h"
#include "framework/tensors/safetensors_writer.h"
#include "stages/adamw.h"
#include "stages/gradients.h"
#include "stages/group_setup.h"
#include "stages/stage_state.h"
#include "stages/sync_memory.h"
#include "stages/wait_clock.h"

namespace strait::stages {

// For a process of a replica that rejoins a running job.
struct RejoinOptions {
  sync::Rejoin rejoin;
  std::function<void()> on_progress = {};  // called for every part of the state that arrives
};

// Keeps a stage in sync with the same stage of other replicas: connects the sync engine to the
// optimizer, the gradients and checkpoints. With one replica every call does nothing.
//
// With groups (GroupOptions::groups) there are two engines: one sums gradients in the own group,
// the other runs the method between groups. Every member of a group runs the method on the same
// frames, which the leader exchanges, so all members hold the same weights and slots.
class ReplicaSync {
 public:
  ReplicaSync(sync::SyncSettings settings, std::int64_t replicas, std::int64_t replica,
              sync::Layout layout, AdamW& optimizer, Gradients& gradients, WaitClock& waits,
              GroupOptions group = {});
  ~ReplicaSync();

  // Whether gradients are summed over the replicas before their norms are computed.
  bool sums_gradients() const { return alone() || method().traits.sums_gradients; }
  // Whether this replica (or its group) clips by itself: sync::MethodTraits::trains_apart.
  bool trains_apart() const;
  // Links by replica, null at the own index. `next`: the first step of this process. `tracker`
  // outlives this object; null: no replica may be evicted. With `rejoin` this waits for the state
  // from one of the members.
  void connect(std::vector<std::unique_ptr<net::Link>> links, store::Step next,
               sync::MembershipTracker* tracker, const std::optional<RejoinOptions>& rejoin = {});
  net::Link* link(std::size_t replica) const;  // null if there is none
  // After connect(), if a group was requested: what sums the gradients, or why links carry them.
  const std::string& group_text() const { return group_.text; }

  // Hooks of a step, in this order. Each returns when the method has done its work at that point.
  void gradient_begins(store::Step step);
  // The last micro-batch of the step starts its backward (or its weight gradients, if backwards are
  // split): from now on, ranges with a complete gradient may be sent.
  void last_backward_begins();
  // False: a replica was evicted, and some process may lack data of this step's round.
  bool gradient_whole(store::Step step);
  // Called after the norms of the gradient are read and before they are reported. Throws if the
  // gradient is invalid, because the sums of a group failed on the device.
  void check_sums() const;
  void gradient_clipped(store::Step step);
  void before_update(store::Step step);
  sync::UpdateRule update_rule(store::Step step) const;
  // True (only with a tracker): a round was opened that apply_now() applies, once all processes
  // have its data.
  bool updated(store::Step step, bool leaving);
  void apply_now();
  bool membership_changes() const { return tracker_ != nullptr; }
  const sync::Membership& members() const { return members_; }
  // The members as the method counts them: with several groups, their leaders.
  const sync::Membership& contributors() const { return grouped() ? leaders_ : members_; }
  // The rows of all replicas divided by the rows of this contributor. With equal rows it is the
  // number of contributors.
  std::size_t copies() const;
  // The replicas whose rows this one trains on: itself, or its group.
  std::vector<std::uint32_t> trained_together() const;
  // Waits until all data of the next round to be applied has arrived: now, or before a read of the
  // model after this many steps. False: a replica was evicted.
  bool round_complete_now();
  bool round_complete_before_read(store::Step steps);
  // All stages of all replicas continue with the members of this epoch. `complete`: the last
  // consensus round is valid; otherwise it is repeated.
  void regroup(std::uint32_t epoch, bool complete);
  // A replica rejoins after the checkpoint of this many steps; one member sends it the state.
  void add_member(const sync::Rejoin& rejoin, store::Step steps);

  // Called between steps. From show_model() to hide_model() the parameters hold the model that the
  // replicas agree on.
  void show_model(store::Step steps);
  void hide_model();
  void before_checkpoint(store::Step steps);

  // The model that all replicas agree on, as views of this replica's memory.
  std::vector<tensors::NamedTensor> model() const;
  // This replica's tensors for a checkpoint. The first member saves the model under the parameters'
  // names. If replicas differ, each saves its own state under "replica-R/…".
  std::vector<tensors::NamedTensor> saved_tensors() const;
  // `exact`: the checkpoint has the same method, settings and replicas, so each replica restores
  // its own state. Otherwise all start with the agreed model and the moments of replica 0.
  void restore(const ReadTensor& read, const HasTensor& has, bool exact);

  sync::SyncTraffic traffic() const;                         // any thread
  double waited_seconds() const { return waited_seconds_; }  // so far, in the calls above

 private:
  bool alone() const { return slots_ == nullptr; }
  bool grouped() const { return own_.count() > 0; }
  bool leads() const { return !grouped() || own_.mine == 0; }
  // The replica whose state in checkpoints is also this replica's.
  std::uint32_t leader() const;
  const sync::SyncMethod& method() const;
  bool differs() const;  // replicas have different weights and moments
  void wait(const std::function<void()>& work);
  // Does the same at a point where the engine may open or apply a round. The method sees what the
  // stage has computed, and the stage sees what the method has changed.
  void wait_at(const sync::HookPoint& point, const std::function<void()>& work);
  std::vector<sync::Range> compared_weights(const sync::SyncRounds& rounds) const;
  void make_method();  // with its memory and slots
  void set_up_group();
  // Takes the links to the own group, and returns the links of the method.
  std::vector<std::unique_ptr<net::Link>> make_sums(std::vector<std::unique_ptr<net::Link>> links);
  void sum_in_group(store::Step step);
  void receive_from_member(const RejoinOptions& options);
  void send_to_new_member(std::uint32_t replica);
  std::string own(const std::string& slot, const std::string& name) const;

  sync::SyncSettings settings_;
  const GroupOptions group_options_;
  AdamW& optimizer_;
  Gradients& gradients_;
  WaitClock& waits_;
  const sync::Layout layout_;
  std::size_t replica_;
  std::size_t replicas_;
  sync::Membership members_;
  sync::Membership own_;      // the own group; empty: no groups
  sync::Membership leaders_;  // of all groups
  sync::MembershipTracker* tracker_ = nullptr;
  std::unique_ptr<sync::SyncMethod> method_;  // until connect() moves it to rounds_
  std::unique_ptr<SyncMemory> memory_;        // null with one replica
  std::unique_ptr<sync::Slots> slots_;        // over memory_; null with one replica
  GroupSetup group_;
  std::unique_ptr<sync::SyncRounds> sums_;    // in the own group; null: there is none
  std::unique_ptr<sync::SyncRounds> rounds_;  // null: one group of all replicas
  std::vector<net::Link*> links_;
  bool restored_ = false;  // slots_ hold the state of an earlier step
  double waited_seconds_ = 0;
  std::vector<float> hidden_;  // own weights between show_model() and hide_model()
};

}  // namespace strait::stages

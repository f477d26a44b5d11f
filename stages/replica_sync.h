#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/sync/methods.h"
#include "framework/sync/sync_rounds.h"
#include "framework/tensors/safetensors_writer.h"
#include "stages/adamw.h"
#include "stages/entry.h"
#include "stages/gradients.h"
#include "stages/stage_state.h"
#include "stages/wait_clock.h"

namespace strait::stages {

// What keeps a stage together with the same stage of other replicas. With one replica it does
// nothing, so that nobody has to ask.
class ReplicaSync {
 public:
  ReplicaSync(const sync::SyncSettings& settings, std::int64_t replicas, std::int64_t replica,
              sync::Layout layout, AdamW& optimizer, Gradients& gradients, WaitClock& waits);
  ~ReplicaSync();

  // Whether gradients are added up over the replicas before anybody asks for their norms.
  bool sums_gradients() const { return alone() || method().sums_gradients(); }

  // Links by replica, null at the own place. `next`: the first step of this process. `tracker`:
  // says which replicas leave and come, and outlives this; null: none may. `entry`: this one comes,
  // and waits here until one of the others has told it all.
  void connect(std::vector<std::unique_ptr<net::Link>> links, store::Step next,
               sync::MembershipTracker* tracker, const std::optional<Entry>& entry = {});
  net::Link* link(std::size_t replica) const;  // null where there is none

  // The hooks of a step, in this order; each returns when the method has made of the moment what it
  // wants.
  void gradient_begins(store::Step step);
  void last_backward_begins();  // parameters that autograd has finished with may leave from now on
  // False: a replica has left, and not everybody holds what this step is to land.
  bool gradient_whole(store::Step step);
  void gradient_clipped(store::Step step);
  void before_update(store::Step step);
  // True, where replicas may leave: a round was opened that all have to hold before it lands, by
  // apply_now().
  bool updated(store::Step step, bool leaving);
  void apply_now();
  sync::UpdateRule update_rule(store::Step step) const;

  bool may_part() const { return tracker_ != nullptr; }
  // The replicas that take part now; the epoch of that.
  const sync::Membership& members() const { return members_; }
  // Waits until all of what lands now, or before a look at this many steps, is here. False: a
  // replica has left.
  bool round_complete_now();
  bool round_complete_before_read(store::Step steps);
  // All stages of all replicas go on as this epoch says: what they were last asked for is agreed on
  // already (`passed`), or is to be agreed on again.
  void regroup(std::uint32_t epoch, bool passed);
  // A replica comes, behind a checkpoint of so many steps.
  void welcome(const sync::Rejoin& arrival, store::Step steps);

  // Between steps, while somebody looks at the model: the parameters hold what all replicas agree
  // on.
  void show_model(store::Step steps);
  void hide_model();
  void before_checkpoint(store::Step steps);

  // The model that all replicas agree on, as views of this one's memory.
  std::vector<tensors::NamedTensor> model() const;
  // What a checkpoint holds of this replica: the agreed model under the parameters' own names (of
  // the first member alone), and where replicas differ each one's own under "replica-R/…".
  std::vector<tensors::NamedTensor> saved_tensors() const;
  // `exact`: the checkpoint is of this method, these settings and this layout of replicas, and all
  // of it comes back; else everybody starts from the agreed model and replica 0's moments.
  void restore(const ReadTensor& read, bool exact);

  sync::SyncTraffic traffic() const;                         // any thread
  double waited_seconds() const { return waited_seconds_; }  // so far, in the calls above

 private:
  bool alone() const { return slots_ == nullptr; }
  const sync::SyncMethod& method() const { return rounds_ ? rounds_->method() : *method_; }
  bool differs() const;  // replicas have weights and moments of their own
  template <class Work>
  void wait(Work work);
  void enter(const Entry& entry);
  void tell_all_to(std::uint32_t replica);
  std::string own(const std::string& slot, const std::string& name) const;

  AdamW& optimizer_;
  Gradients& gradients_;
  WaitClock& waits_;
  const sync::Layout layout_;
  std::size_t replica_;
  std::size_t replicas_;
  sync::Membership members_;
  sync::MembershipTracker* tracker_ = nullptr;
  std::unique_ptr<sync::SyncMethod> method_;  // until the rounds have it
  std::unique_ptr<sync::Slots> slots_;        // null: there is one replica
  std::unique_ptr<sync::SyncRounds> rounds_;
  std::vector<net::Link*> links_;
  bool restored_ = false;
  double waited_seconds_ = 0;
  std::vector<float> hidden_;  // the own weights while the model is shown
};

}  // namespace strait::stages

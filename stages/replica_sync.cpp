#include "stages/replica_sync.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "framework/sync/model_checksum.h"

namespace strait::stages {
namespace {

sync::Membership all_replicas(std::size_t replicas, std::size_t replica) {
  sync::Membership membership;
  for (std::size_t i = 0; i < replicas; ++i) {
    membership.members.push_back(static_cast<std::uint32_t>(i));
  }
  membership.mine = replica;
  return membership;
}

// The member that sends the state: the first one that has it.
std::uint32_t sender_to(const sync::Membership& members, const sync::Rejoin& rejoin) {
  return *std::ranges::find_if(members.members,
                               [&](std::uint32_t one) { return one != rejoin.replica; });
}

// A view of one parameter in a slot.
at::Tensor tensor_over(sync::Slots& slots, const std::string& slot, const sync::Piece& piece) {
  const std::span<std::byte> bytes = slots.bytes(slot, piece.range);
  const bool narrow = bytes.size() != static_cast<std::size_t>(piece.range.count()) * sizeof(float);
  return at::from_blob(bytes.data(), piece.spec.shape, narrow ? at::kBFloat16 : at::kFloat);
}

}  // namespace

ReplicaSync::ReplicaSync(const sync::SyncSettings& settings, std::int64_t replicas,
                         std::int64_t replica, sync::Layout layout, AdamW& optimizer,
                         Gradients& gradients, WaitClock& waits)
    : optimizer_(optimizer),
      gradients_(gradients),
      waits_(waits),
      layout_(std::move(layout)),
      replica_(static_cast<std::size_t>(replica)),
      replicas_(static_cast<std::size_t>(replicas)),
      members_(all_replicas(replicas_, replica_)) {
  if (replicas_ == 1) return;
  method_ = sync::make_method(settings);
  memory_ = std::make_unique<SyncMemory>(optimizer, gradients, method_->trainer_slots());
  slots_ = std::make_unique<sync::Slots>(layout_, memory_->spans(), method_->slots());
  slots_->spread_by(
      [](std::int64_t count, const sync::Work& work) { at::parallel_for(0, count, 1, work); });
}

ReplicaSync::~ReplicaSync() = default;

void ReplicaSync::connect(std::vector<std::unique_ptr<net::Link>> links, store::Step next,
                          sync::MembershipTracker* tracker,
                          const std::optional<RejoinOptions>& rejoin) {
  if (alone()) return;
  tracker_ = tracker;
  // The engine owns the links; reports and rejoining replicas use these pointers.
  for (const auto& link : links) links_.push_back(link.get());
  if (tracker_ != nullptr && !rejoin) members_ = tracker_->wait_for(0);
  if (rejoin) receive_from_member(*rejoin);
  // Only now: the method derives its slots from the weights, which are loaded before connect().
  memory_->to_host();
  if (!restored_) method_->start(*slots_);
  rounds_ = std::make_unique<sync::SyncRounds>(std::move(method_), *slots_, members_,
                                               std::move(links), tracker);
  // A copy of the gradient is made when it is whole.
  if (!memory_->is_copy()) {
    gradients_.on_ready(layout_, [this](sync::Range range) { rounds_->gradient_ready(range); });
  }
  // Opens the round again that was in progress when the slots were saved.
  if (restored_) rounds_->resume(next);
}

void ReplicaSync::receive_from_member(const RejoinOptions& options) {
  members_ = tracker_->wait_for(options.rejoin.epoch);
  const std::uint32_t sender = sender_to(members_, options.rejoin);
  const WaitClock::Wait waiting(waits_, "the state of another replica", *links_[sender]);
  receive_state(*slots_, method().model_slot(), optimizer_, *links_[sender], [&](bool received) {
    if (received && options.on_progress) options.on_progress();
    if (tracker_->contains(sender)) return;
    // The state may be overwritten in part: rejoining has to start over.
    throw net::LinkError(
        net::LinkError::Kind::lost,
        fmt::format("cannot rejoin: replica {}, which was sending the state, was evicted", sender));
  });
  memory_->all_to_device();
  optimizer_.publish();
  restored_ = true;
}

void ReplicaSync::add_member(const sync::Rejoin& rejoin, store::Step steps) {
  wait([&] {
    members_ = tracker_->wait_for(rejoin.epoch);
    // Before any step of the new epoch: the state is that of the checkpoint.
    if (sender_to(members_, rejoin) == replica_) send_to_new_member(rejoin.replica);
    rounds_->rejoin(members_, steps);
  });
}

void ReplicaSync::send_to_new_member(std::uint32_t replica) {
  memory_->all_to_host();
  try {
    send_state(*slots_, method().model_slot(), optimizer_, *links_[replica]);
  } catch (const net::LinkError& error) {
    const bool gone =
        error.kind() == net::LinkError::Kind::lost || error.kind() == net::LinkError::Kind::aborted;
    if (!gone) throw;
    // The new member is lost again; training continues, and the next round finds it evicted.
    tracker_->report_lost(replica, error.what());
  }
}

net::Link* ReplicaSync::link(std::size_t replica) const {
  return replica < links_.size() ? links_[replica] : nullptr;
}

template <class Work>
void ReplicaSync::wait(Work work) {
  const auto started = std::chrono::steady_clock::now();
  {
    const WaitClock::Wait waiting(waits_, "the sync with other replicas",
                                  [this] { return rounds_->awaited_link(); });
    work();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started;
  waited_seconds_ += took.count();
}

// With every round members compare a share of the model, which may be in the trainer's memory.
std::vector<sync::Range> ReplicaSync::compared_weights() const {
  std::vector<sync::Range> ranges;
  if (!method().model_is_replicated() || differs()) return ranges;
  for (const std::size_t piece : sync::checked_pieces(layout_, rounds_->number())) {
    ranges.push_back(layout_.pieces()[piece].range);
  }
  return ranges;
}

template <class Work>
void ReplicaSync::wait_at(const sync::Moment& moment, Work work) {
  wait([&] {
    const bool reads = memory_->is_copy() && (rounds_->in_progress() ||
                                              method().plan(moment, layout_, members_).has_value());
    if (reads) memory_->to_host(compared_weights());
    const std::uint64_t before = rounds_->changes();
    work();
    if (rounds_->changes() != before) memory_->to_device();
  });
}

void ReplicaSync::gradient_begins(store::Step step) {
  if (alone()) return;
  memory_->gradient_changed();
  rounds_->gradient_begins(step);
}

void ReplicaSync::last_backward_begins() {
  if (!alone()) gradients_.announce(true);
}

bool ReplicaSync::gradient_whole(store::Step step) {
  if (alone()) return true;
  gradients_.announce(false);
  bool whole = true;
  wait_at({step, sync::Hook::gradient}, [&] {
    whole = rounds_->gradient_whole(step);
    // Without a tracker, before_update() waits for the round, which may be in progress until then.
    if (tracker_ != nullptr) whole = rounds_->round_complete(step) && whole;
  });
  return whole;
}

void ReplicaSync::regroup(std::uint32_t epoch, bool complete) {
  if (alone() || epoch == members_.epoch) return;
  // wait_for() may wait: the first stage learns of an epoch before the coordinator's message
  // arrives here.
  wait([&] {
    members_ = tracker_->wait_for(epoch);
    const std::uint64_t before = rounds_->changes();
    rounds_->regroup(members_, complete);
    if (rounds_->changes() != before) memory_->to_device();
  });
}

void ReplicaSync::gradient_clipped(store::Step step) {
  if (alone()) return;
  memory_->gradient_changed();
  wait_at({step, sync::Hook::clipped}, [&] { rounds_->gradient_clipped(step); });
}

void ReplicaSync::before_update(store::Step step) {
  if (!alone()) wait_at({step, sync::Hook::clipped}, [&] { rounds_->before_update(step); });
}

bool ReplicaSync::updated(store::Step step, bool leaving) {
  if (alone()) return false;
  bool applies_now = false;
  memory_->state_changed();
  wait_at({step, sync::Hook::update}, [&] { applies_now = rounds_->updated(step, leaving); });
  // A round may have been applied to the masters: narrower parameters are copies of them.
  if (!applies_now) optimizer_.publish();
  return applies_now;
}

void ReplicaSync::apply_now() {
  wait([&] {
    rounds_->apply_now();
    memory_->to_device();
  });
  optimizer_.publish();
}

bool ReplicaSync::round_complete_now() {
  bool whole = true;
  if (!alone()) wait([&] { whole = rounds_->round_complete_now(); });
  return whole;
}

bool ReplicaSync::round_complete_before_read(store::Step steps) {
  bool whole = true;
  if (!alone()) wait([&] { whole = rounds_->round_complete_before_read(steps); });
  return whole;
}

sync::UpdateRule ReplicaSync::update_rule(store::Step step) const {
  return alone() ? sync::UpdateRule::adamw : method().update_rule(step);
}

void ReplicaSync::before_checkpoint(store::Step steps) {
  if (alone()) return;
  wait_at({steps, sync::Hook::model_read}, [&] { rounds_->before_model_read(steps); });
  optimizer_.publish();  // a round may have been applied
}

void ReplicaSync::show_model(store::Step steps) {
  if (alone()) return;
  before_checkpoint(steps);
  const std::string model = method().model_slot();
  if (model == sync::kWeights) return;
  const std::span<float> weights = slots_->values(sync::kWeights);
  memory_->to_host();
  // The layers read their parameters from these weights, so the model replaces them for a while.
  hidden_.assign(weights.begin(), weights.end());
  slots_->load(model, {0, layout_.size()}, weights);
  memory_->to_device(sync::kWeights);
  optimizer_.publish();
}

void ReplicaSync::hide_model() {
  if (alone() || hidden_.empty()) return;
  const std::span<float> weights = slots_->values(sync::kWeights);
  std::copy(hidden_.begin(), hidden_.end(), weights.begin());
  hidden_ = {};
  memory_->to_device(sync::kWeights);
  optimizer_.publish();
}

bool ReplicaSync::differs() const { return !alone() && method().model_slot() != sync::kWeights; }

std::string ReplicaSync::own(const std::string& slot, const std::string& name) const {
  return fmt::format("replica-{}/{}/{}", replica_, slot, name);
}

std::vector<tensors::NamedTensor> ReplicaSync::model() const {
  std::vector<tensors::NamedTensor> tensors;
  for (const AdamW::Slot& slot : optimizer_.slots()) {
    const bool own = !differs();
    tensors.push_back(
        {slot.name, own ? slot.master
                        : tensor_over(*slots_, method().model_slot(), layout_.piece(slot.name))});
  }
  return tensors;
}

std::vector<tensors::NamedTensor> ReplicaSync::saved_tensors() const {
  std::vector<tensors::NamedTensor> tensors;
  const bool first = replica_ == members_.members.front();
  const std::string model = alone() ? sync::kWeights : method().model_slot();
  for (tensors::NamedTensor& tensor : stages::saved_tensors(optimizer_)) {
    const auto slot = std::find_if(optimizer_.slots().begin(), optimizer_.slots().end(),
                                   [&](const AdamW::Slot& one) { return one.name == tensor.name; });
    const bool is_weight = slot != optimizer_.slots().end();
    // The plain names belong to the agreed model. Own weights, and own moments of all but the first
    // member, are saved under the replica's prefix.
    if (differs() && (is_weight || !first)) {
      tensors.push_back({own(sync::kWeights, tensor.name), tensor.tensor});
    }
    if (!first) continue;
    // In float32, as a checkpoint of one replica has it.
    if (differs() && is_weight) {
      tensor.tensor = tensor_over(*slots_, model, layout_.piece(tensor.name)).to(at::kFloat);
    }
    tensors.push_back(std::move(tensor));
  }
  if (alone()) return tensors;
  for (const sync::SlotNeed& need : slots_->needs()) {
    if (!need.saved || need.name == model) continue;
    for (const AdamW::Slot& slot : optimizer_.slots()) {
      tensors.push_back(
          {own(need.name, slot.name), tensor_over(*slots_, need.name, layout_.piece(slot.name))});
    }
  }
  return tensors;
}

void ReplicaSync::restore(const ReadTensor& read, bool exact) {
  const bool own_state = exact && differs();
  stages::restore(optimizer_, [&](const std::string& name) {
    return own_state && replica_ != 0 ? read(own(sync::kWeights, name)) : read(name);
  });
  restored_ = exact;
  if (alone() || !exact) return;
  const at::NoGradGuard no_grad;
  const std::string model = method().model_slot();
  for (const AdamW::Slot& slot : optimizer_.slots()) {
    const sync::Piece& piece = layout_.piece(slot.name);
    if (own_state) {
      slot.master.copy_(read(own(sync::kWeights, slot.name)));
      tensor_over(*slots_, model, piece).copy_(read(slot.name));
    }
    for (const sync::SlotNeed& need : slots_->needs()) {
      if (!need.saved || need.name == model) continue;
      tensor_over(*slots_, need.name, piece).copy_(read(own(need.name, slot.name)));
    }
  }
  optimizer_.publish();
}

sync::SyncTraffic ReplicaSync::traffic() const {
  return rounds_ == nullptr ? sync::SyncTraffic{} : rounds_->traffic();
}

}  // namespace strait::stages

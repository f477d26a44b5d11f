#include "stages/replica_sync.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "framework/sync/exchange.h"
#include "framework/sync/frame_relay.h"
#include "kernels/parallel.h"

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

// A view of one parameter in a slot.
at::Tensor tensor_over(sync::Slots& slots, const std::string& slot, const sync::Piece& piece) {
  const std::span<std::byte> bytes = slots.bytes(slot, piece.range);
  const bool narrow = bytes.size() != static_cast<std::size_t>(piece.range.count()) * sizeof(float);
  return at::from_blob(bytes.data(), piece.spec.shape, narrow ? at::kBFloat16 : at::kFloat);
}

}  // namespace

ReplicaSync::ReplicaSync(sync::SyncSettings settings, std::int64_t replicas, std::int64_t replica,
                         sync::Layout layout, AdamW& optimizer, Gradients& gradients,
                         WaitClock& waits, GroupOptions group)
    : settings_(std::move(settings)),
      group_options_(std::move(group)),
      optimizer_(optimizer),
      gradients_(gradients),
      waits_(waits),
      layout_(std::move(layout)),
      replica_(static_cast<std::size_t>(replica)),
      replicas_(static_cast<std::size_t>(replicas)),
      members_(all_replicas(replicas_, replica_)) {
  if (replicas_ == 1) return;
  if (const sync::ReplicaGroups& groups = group_options_.groups; !groups.empty()) {
    own_ = sync::group_of(groups, static_cast<std::uint32_t>(replica));
    leaders_ = sync::leaders_of(groups, static_cast<std::uint32_t>(replica));
    // A leader contributes for its group.
    for (const auto& members : groups) {
      for (const std::uint32_t member : members) {
        if (settings_.rows.empty() || member == members.front()) continue;
        settings_.rows[members.front()] += settings_.rows[member];
      }
    }
  }
  make_method();
}

void ReplicaSync::make_method() {
  // If all replicas are in one group, nothing is left to exchange between groups.
  const bool all_in_group = grouped() && leaders_.count() == 1;
  method_ = sync::make_method(all_in_group ? sync::settings_in_group(settings_) : settings_);
  memory_ = std::make_unique<SyncMemory>(optimizer_, gradients_, method_->traits.trainer_slots);
  slots_ = std::make_unique<sync::Slots>(layout_, memory_->spans(), method_->traits.slots);
  slots_->spread_by(
      [](std::int64_t count, const sync::Work& work) { kernels::parallel_for(count, 1, work); });
}

ReplicaSync::~ReplicaSync() = default;

void ReplicaSync::connect(std::vector<std::unique_ptr<net::Link>> links, store::Step next,
                          sync::MembershipTracker* tracker,
                          const std::optional<RejoinOptions>& rejoin) {
  if (alone()) return;
  tracker_ = tracker;
  // The engine owns the links; evictions and rejoins use these pointers.
  for (const auto& link : links) links_.push_back(link.get());
  if (tracker_ != nullptr && !rejoin) members_ = tracker_->wait_for(0);
  if (rejoin) receive_from_member(*rejoin);
  if (own_.count() > 1) set_up_group();
  // Only now: the method derives its slots from the weights, which are loaded before connect().
  memory_->to_host();
  if (!restored_) {
    method_->start(*slots_);
    // The method may have rounded the weights.
    memory_->to_device();
    optimizer_.publish();
  }
  if (group_.group != nullptr) links = make_sums(std::move(links));
  if (method_ != nullptr) {
    rounds_ = std::make_unique<sync::SyncRounds>(std::move(method_), *slots_, contributors(),
                                                 std::move(links), tracker);
  }
  // If the engine works on a copy, the gradient is copied when it is complete.
  if (!memory_->is_copy() || (group_.group != nullptr && !group_.on_host)) {
    gradients_.on_ready(layout_, [this](sync::Range range) {
      if (sums_ == nullptr) return rounds_->gradient_ready(range);
      group_.group->values_ready();
      sums_->gradient_ready(range);
    });
  }
  // Reopens the round that was in progress when the slots were saved.
  if (restored_ && rounds_ != nullptr) rounds_->resume(next);
}

void ReplicaSync::receive_from_member(const RejoinOptions& options) {
  members_ = tracker_->wait_for(options.rejoin.epoch);
  const std::uint32_t sender = sync::rejoin_sender(members_, options.rejoin);
  const WaitClock::Wait waiting(waits_, "the state of another replica", *links_[sender]);
  receive_state(
      *slots_, method().traits.model_slot, optimizer_, *links_[sender], [&](bool received) {
        if (received && options.on_progress) options.on_progress();
        if (tracker_->contains(sender)) return;
        // The state may be overwritten in part: rejoining has to start over.
        throw net::LinkError(
            net::LinkError::Kind::lost,
            fmt::format("cannot rejoin: replica {}, which was sending the state, was evicted",
                        sender));
      });
  memory_->all_to_device();
  optimizer_.publish();
  restored_ = true;
}

void ReplicaSync::add_member(const sync::Rejoin& rejoin, store::Step steps) {
  wait([&] {
    members_ = tracker_->wait_for(rejoin.epoch);
    // Before any step of the new epoch, so that the state is that of the checkpoint.
    if (sync::rejoin_sender(members_, rejoin) == replica_) send_to_new_member(rejoin.replica);
    rounds_->rejoin(members_, steps);
  });
}

void ReplicaSync::send_to_new_member(std::uint32_t replica) {
  memory_->all_to_host();
  try {
    send_state(*slots_, method().traits.model_slot, optimizer_, *links_[replica]);
  } catch (const net::LinkError& error) {
    if (!error.peer_gone()) throw;
    // The new member is lost again. Training continues, and the next round finds it evicted.
    tracker_->report_lost(replica, error.what());
  }
}

net::Link* ReplicaSync::link(std::size_t replica) const {
  return replica < links_.size() ? links_[replica] : nullptr;
}

void ReplicaSync::wait(const std::function<void()>& work) {
  const auto started = std::chrono::steady_clock::now();
  {
    const WaitClock::Wait waiting(waits_, "the sync with other replicas", [this] {
      const net::Link* const in_group = sums_ == nullptr ? nullptr : sums_->awaited_link();
      return in_group != nullptr || rounds_ == nullptr ? in_group : rounds_->awaited_link();
    });
    work();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started;
  waited_seconds_ += took.count();
}

// With every round, members compare a part of the model, which may be in the trainer's memory.
std::vector<sync::Range> ReplicaSync::compared_weights(const sync::SyncRounds& rounds) const {
  std::vector<sync::Range> ranges;
  const sync::SyncMethod& compares = rounds.method();
  if (!compares.traits.model_is_replicated || compares.traits.model_slot != sync::kWeights)
    return ranges;
  for (const std::size_t piece : sync::checked_pieces(layout_, rounds.number())) {
    ranges.push_back(layout_.pieces()[piece].range);
  }
  return ranges;
}

void ReplicaSync::wait_at(const sync::HookPoint& point, const std::function<void()>& work) {
  if (rounds_ == nullptr) return;
  wait([&] {
    const bool reads =
        memory_->is_copy() &&
        (rounds_->in_progress() || method().plan(point, layout_, contributors()).has_value());
    if (reads) memory_->to_host(compared_weights(*rounds_));
    const std::uint64_t before = rounds_->changes();
    work();
    if (rounds_->changes() != before) memory_->to_device();
  });
}

void ReplicaSync::gradient_begins(store::Step step) {
  if (alone()) return;
  memory_->gradient_changed();
  if (sums_ == nullptr) return rounds_->gradient_begins(step);
  memory_->begin_to_host(compared_weights(*sums_));
  sums_->gradient_begins(step);
}

void ReplicaSync::last_backward_begins() {
  if (!alone()) gradients_.announce(true);
}

bool ReplicaSync::gradient_whole(store::Step step) {
  if (alone()) return true;
  gradients_.announce(false);
  if (sums_ != nullptr) sum_in_group(step);
  bool whole = true;
  wait_at({step, sync::Hook::gradient}, [&] {
    check_sums();  // first: the round would otherwise encode a failed sum
    whole = rounds_->gradient_whole(step);
    // Without a tracker, before_update() waits for the round, which may be in progress until then.
    if (tracker_ != nullptr) whole = rounds_->round_complete(step) && whole;
  });
  return whole;
}

void ReplicaSync::check_sums() const {
  if (sums_ != nullptr) sums_->check_sums();
}

void ReplicaSync::regroup(std::uint32_t epoch, bool complete) {
  if (alone() || epoch == members_.epoch) return;
  // wait_for() may wait, because the first stage may learn of an epoch before the coordinator's
  // message arrives here.
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
  // First, because the method's rounds read the weights that other members have updated.
  if (optimizer_.shares_state()) {
    group_.group->values_ready();
    wait([&] { sums_->updated(step, leaving); });
  }
  wait_at({step, sync::Hook::update}, [&] { applies_now = rounds_->updated(step, leaving); });
  // A round may have changed the masters, and narrower parameters are copies of masters.
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
  if (rounds_ != nullptr) wait([&] { whole = rounds_->round_complete_now(); });
  return whole;
}

bool ReplicaSync::round_complete_before_read(store::Step steps) {
  bool whole = true;
  if (rounds_ != nullptr) wait([&] { whole = rounds_->round_complete_before_read(steps); });
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

sync::SyncTraffic ReplicaSync::traffic() const {
  sync::SyncTraffic traffic;
  if (rounds_ != nullptr) traffic = rounds_->traffic();
  if (sums_ == nullptr) return traffic;
  if (rounds_ == nullptr) return sums_->traffic();
  traffic.sent_bytes += sums_->traffic().sent_bytes;
  return traffic;
}

// ---- Checkpoints.

void ReplicaSync::show_model(store::Step steps) {
  if (alone()) return;
  before_checkpoint(steps);
  const std::string model = method().traits.model_slot;
  if (model == sync::kWeights) return;
  const std::span<float> weights = slots_->values(sync::kWeights);
  memory_->to_host();
  // The layers read their parameters from these weights, so the model takes their place until
  // hide_model().
  hidden_.assign(weights.begin(), weights.end());
  slots_->load(model, {0, layout_.size()}, weights);
  memory_->to_device(sync::kWeights);
  optimizer_.publish();
}

void ReplicaSync::hide_model() {
  if (alone() || hidden_.empty()) return;
  const std::span<float> weights = slots_->values(sync::kWeights);
  memory_->to_host();  // the copy of the model to a device may still read them
  std::copy(hidden_.begin(), hidden_.end(), weights.begin());
  hidden_ = {};
  memory_->to_device(sync::kWeights);
  optimizer_.publish();
}

bool ReplicaSync::differs() const {
  return !alone() && method().traits.model_slot != sync::kWeights;
}

std::string ReplicaSync::own(const std::string& slot, const std::string& name) const {
  return fmt::format("replica-{}/{}/{}", leader(), slot, name);
}

std::vector<tensors::NamedTensor> ReplicaSync::model() const {
  std::vector<tensors::NamedTensor> tensors;
  for (const AdamW::Slot& slot : optimizer_.slots()) {
    const bool own = !differs();
    tensors.push_back({slot.name, own ? slot.master
                                      : tensor_over(*slots_, method().traits.model_slot,
                                                    layout_.piece(slot.name))});
  }
  return tensors;
}

std::vector<tensors::NamedTensor> ReplicaSync::saved_tensors() const {
  std::vector<tensors::NamedTensor> tensors;
  const bool first = leader() == members_.members.front();
  const std::string model = alone() ? sync::kWeights : method().traits.model_slot;
  // All members of a group have the same state, but for moments that they share.
  if (!leads() && !optimizer_.shares_state()) return tensors;
  for (tensors::NamedTensor& tensor :
       leads() ? stages::saved_tensors(optimizer_) : stages::saved_moments(optimizer_)) {
    const auto slot = std::find_if(optimizer_.slots().begin(), optimizer_.slots().end(),
                                   [&](const AdamW::Slot& one) { return one.name == tensor.name; });
    const bool is_weight = slot != optimizer_.slots().end();
    // The plain names belong to the agreed model. A replica's own weights, and the moments of all
    // members but the first, are saved under the replica's prefix.
    if (differs() && (is_weight || !first)) {
      tensors.push_back({own(sync::kWeights, tensor.name), tensor.tensor});
    }
    if (!first) continue;
    // In float32, as in a checkpoint of one replica.
    if (differs() && is_weight) {
      tensor.tensor = tensor_over(*slots_, model, layout_.piece(tensor.name)).to(at::kFloat);
    }
    tensors.push_back(std::move(tensor));
  }
  if (alone() || !leads()) return tensors;
  for (const sync::SlotNeed& need : slots_->needs()) {
    if (!need.saved || need.name == model) continue;
    for (const AdamW::Slot& slot : optimizer_.slots()) {
      tensors.push_back(
          {own(need.name, slot.name), tensor_over(*slots_, need.name, layout_.piece(slot.name))});
    }
  }
  return tensors;
}

void ReplicaSync::restore(const ReadTensor& read, const HasTensor& has, bool exact) {
  const bool own_state = exact && differs();
  stages::restore(optimizer_, [&](const std::string& name) {
    return own_state && leader() != 0 ? read(own(sync::kWeights, name)) : read(name);
  });
  restored_ = exact;
  if (alone() || !exact) return;
  const at::NoGradGuard no_grad;
  const std::string model = method().traits.model_slot;
  for (const AdamW::Slot& slot : optimizer_.slots()) {
    const sync::Piece& piece = layout_.piece(slot.name);
    if (own_state) {
      slot.master.copy_(read(own(sync::kWeights, slot.name)));
      tensor_over(*slots_, model, piece).copy_(read(slot.name));
    }
    for (const sync::SlotNeed& need : slots_->needs()) {
      if (!need.saved || need.name == model) continue;
      const std::string name = own(need.name, slot.name);
      if (need.optional && !has(name)) continue;
      tensor_over(*slots_, need.name, piece).copy_(read(name));
    }
  }
  optimizer_.publish();
}

// ---- Groups: what a group sums, and what its members see of other groups.

std::uint32_t ReplicaSync::leader() const {
  return grouped() ? own_.members.front() : static_cast<std::uint32_t>(replica_);
}

std::vector<std::uint32_t> ReplicaSync::trained_together() const {
  return grouped() ? own_.members : std::vector{static_cast<std::uint32_t>(replica_)};
}

std::size_t ReplicaSync::copies() const {
  const std::vector<float> shares = sync::shares_of(settings_.rows, contributors());
  if (shares.empty()) return contributors().count();
  return static_cast<std::size_t>(std::lround(1 / shares[contributors().mine]));
}

bool ReplicaSync::trains_apart() const { return !alone() && method().traits.trains_apart; }

const sync::SyncMethod& ReplicaSync::method() const {
  if (method_ != nullptr) return *method_;
  return rounds_ != nullptr ? rounds_->method() : sums_->method();
}

void ReplicaSync::set_up_group() {
  TORCH_INTERNAL_ASSERT(tracker_ == nullptr, "a group whose members may change");
  const auto on_host = [this] {
    const std::span<float> gradient = memory_->pin_gradient();
    slots_->move_gradient(gradient);
    return gradient;
  };
  group_ = stages::set_up_group(group_options_, gradients_.values(), on_host, links_, own_,
                                optimizer_.shares_state() ? optimizer_.masters() : at::Tensor());
  if (group_.group != nullptr) return;
  own_ = {};
  make_method();
}

std::vector<std::unique_ptr<net::Link>> ReplicaSync::make_sums(
    std::vector<std::unique_ptr<net::Link>> links) {
  std::vector<std::unique_ptr<net::Link>> in_group(links.size());
  if (leads()) {
    for (const std::uint32_t replica : own_.members) in_group[replica] = std::move(links[replica]);
  } else {
    // Reports may ask for any of its links as long as this object lives.
    in_group.swap(links);
  }
  const net::Link* const to_leader =
      leads() ? nullptr : in_group[leaders_.members[leaders_.mine]].get();
  auto sums = sync::make_method(sync::settings_in_group(settings_));
  const auto wait_for_weights = [this] {
    // On the host, waiting for the gradient is enough: its copy follows that of the weights.
    if (!group_.on_host) memory_->wait_for_weights();
  };
  sums_ = std::make_unique<sync::SyncRounds>(
      std::move(sums), *slots_, own_, std::move(in_group), nullptr,
      sync::GroupRounds{group_.group.get(), wait_for_weights, !optimizer_.masters().is_cpu()});
  if (group_.relay == nullptr) {
    method_.reset();
    return {};
  }
  return leads() ? sync::leader_links(std::move(links), *group_.relay)
                 : sync::follower_links(leaders_, *group_.relay, to_leader);
}

void ReplicaSync::sum_in_group(store::Step step) {
  group_.group->values_ready();
  wait([&] {
    if (group_.on_host) memory_->to_host(sync::kGradient);
    sums_->gradient_whole(step);
    if (group_.on_host) memory_->to_device(sync::kGradient);
  });
  if (rounds_ != nullptr) rounds_->gradient_begins(step);
}

}  // namespace strait::stages

// The part of ReplicaSync that concerns groups: what a group sums, and what its members see of
// other groups.
#include <utility>

#include "framework/sync/relayed_links.h"
#include "stages/replica_sync.h"

namespace strait::stages {

std::uint32_t ReplicaSync::leader() const {
  return grouped() ? own_.members.front() : static_cast<std::uint32_t>(replica_);
}

std::vector<std::uint32_t> ReplicaSync::trained_together() const {
  return grouped() ? own_.members : std::vector{static_cast<std::uint32_t>(replica_)};
}

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
  group_ = stages::set_up_group(group_options_, gradients_.values(), on_host, links_, own_);
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
      sync::GroupRounds{group_.group.get(), wait_for_weights});
  if (group_.relay == nullptr) {
    method_.reset();
    return {};
  }
  return leads() ? sync::leader_links(std::move(links), *group_.relay)
                 : sync::follower_links(leaders_, *group_.relay, to_leader);
}

void ReplicaSync::sum_in_group(store::Step step) {
  group_.group->gradient_ready();
  wait([&] {
    if (group_.on_host) memory_->to_host(sync::kGradient);
    sums_->gradient_whole(step);
    if (group_.on_host) memory_->to_device(sync::kGradient);
  });
  if (rounds_ != nullptr) rounds_->gradient_begins(step);
}

}  // namespace strait::stages

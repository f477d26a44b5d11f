#include "stages/group_setup.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "framework/sync/shared_memory_group.h"
#include "framework/sync/sync_error.h"

namespace strait::stages {
namespace {

// What one replica contributes to the group.
struct GroupMember {
  sync::GroupHello hello;
  std::shared_ptr<const nccl::Library> library;  // on a device
  std::optional<net::SharedMemory> memory;       // to sum in
  std::optional<net::SharedMemory> relay;
};

sync::GroupHello no_nccl(const GroupOptions& options, const std::string& why) {
  return {.kind = "NCCL", .place = options.place, .obstacle = why};
}

sync::GroupHello hello_on_cpu(const GroupOptions& options) {
  sync::GroupHello hello = sync::SharedMemoryGroup::hello(options.place);
  if (options.use == GroupOptions::Use::automatic) hello.obstacle = "it computes on the CPU";
  if (!options.one_host) hello.obstacle = "it computes on the CPU of one of several hosts";
  return hello;
}

GroupMember member_of(const GroupOptions& options, const at::Tensor& gradient,
                      const sync::Membership& membership) {
  GroupMember member;
  if (gradient.is_cpu()) {
    member.hello = hello_on_cpu(options);
  } else if (options.nccl_library.empty()) {
    member.hello = no_nccl(options, "NCCL sums on NVIDIA's GPUs only");
  } else {
    try {
      member.library = std::make_shared<const nccl::Library>(options.nccl_library);
      // Only one member makes the identifier with which all of them find each other.
      member.hello = NcclGroup::hello(*member.library, options.place, membership.mine == 0);
    } catch (const net::LinkError& error) {
      member.hello = no_nccl(options, error.what());
    }
  }
  // Untouched memory takes no room, so it is allocated before it is known whether it will be used.
  if (options.use == GroupOptions::Use::always && options.one_host) {
    member.memory.emplace(
        sync::SharedMemoryGroup::memory_for(static_cast<std::size_t>(gradient.numel())));
    member.hello.memory = member.memory->key().text();
  }
  if (options.groups.size() > 1 && membership.mine == 0) {
    // Only the first member exchanges frames with other groups, and relays them to the rest.
    member.relay.emplace(sync::FrameRelay::memory_for(membership.count() - 1));
    member.hello.relay = member.relay->key().text();
  }
  return member;
}

std::unique_ptr<sync::FrameRelay> make_relay(GroupMember& member, const sync::GroupHello& first,
                                             const sync::Membership& membership) {
  const std::size_t readers = membership.count() - 1;
  if (member.relay) return std::make_unique<sync::FrameRelay>(std::move(*member.relay), readers);
  const auto key = net::SharedMemoryKey::parse(first.relay);
  if (!key) {
    throw sync::SyncError(sync::SyncError::Kind::corrupt, "a replica sent no key of its relay");
  }
  return std::make_unique<sync::FrameRelay>(
      sync::FrameRelay::open(*key, readers, membership.members.front()), readers,
      membership.mine - 1);
}

std::string text_of(const GroupOptions& options, const sync::ReplicaGroup& group,
                    const sync::Membership& membership) {
  if (options.groups.size() <= 1) return "gradients are summed by " + group.name();
  return fmt::format("gradients of {} are summed by {}; {} groups exchange over links",
                     sync::replicas_text(membership.members), group.name(), options.groups.size());
}

std::span<float> values_of(const at::Tensor& flat) {
  return {flat.mutable_data_ptr<float>(), static_cast<std::size_t>(flat.numel())};
}

[[noreturn]] void refuse_to_share(const std::string& how_it_sums) {
  throw net::LinkError(net::LinkError::Kind::refused,
                       "sync.share_state is true, but " + how_it_sums +
                           ": replicas share the optimizer's state on the CPUs of one host, or on "
                           "GPUs with NCCL and without train.offload; leave sync.share_state out");
}

}  // namespace

GroupSetup set_up_group(const GroupOptions& options, const at::Tensor& gradient,
                        const std::function<std::span<float>()>& on_host,
                        std::span<net::Link* const> links, const sync::Membership& membership,
                        const at::Tensor& shared) {
  GroupMember member = member_of(options, gradient, membership);
  const std::vector<sync::GroupHello> hellos =
      sync::exchange_hellos(member.hello, links, membership, options.limits.setup);
  // The same on all members, because all see these hellos.
  const auto why = sync::objection(hellos, membership, /*place_each=*/!gradient.is_cpu());
  // One member without memory is enough to rule it out for all, so that all decide the same.
  const bool share_memory =
      std::ranges::none_of(hellos, [](const auto& hello) { return hello.memory.empty(); });
  // A group gathers weights where it sums gradients.
  const bool same_device = shared.defined() && shared.device() == gradient.device();
  GroupSetup made;
  if (!why && !gradient.is_cpu()) {
    made.group = std::make_unique<NcclGroup>(std::move(member.library), gradient,
                                             same_device ? shared : at::Tensor(), hellos.front(),
                                             membership, options.limits);
  } else if (share_memory) {
    made.group = std::make_unique<sync::SharedMemoryGroup>(
        on_host(), std::move(*member.memory), hellos, membership,
        same_device && gradient.is_cpu() ? values_of(shared) : std::span<float>());
    made.on_host = !gradient.is_cpu();
  } else if (options.use == GroupOptions::Use::automatic) {
    made.text = "gradients are summed over links: " + why.value_or("they share no memory");
    if (shared.defined()) refuse_to_share(made.text);
    return made;
  } else {
    throw net::LinkError(net::LinkError::Kind::refused,
                         "sync.group is \"always\", but replicas cannot sum without links: " +
                             why.value_or("they share no memory") +
                             "; leave sync.group at \"auto\"");
  }
  if (options.groups.size() > 1) made.relay = make_relay(member, hellos.front(), membership);
  made.text = text_of(options, *made.group, membership);
  if (shared.defined() && !made.group->can_gather()) refuse_to_share(made.text);
  return made;
}

}  // namespace strait::stages

#include "stages/group_setup.h"

#include <optional>
#include <utility>
#include <vector>

#include "framework/sync/group_hello.h"
#include "framework/sync/shared_memory_group.h"

namespace strait::stages {
namespace {

std::span<float> values_of(const at::Tensor& gradient) {
  return {gradient.mutable_data_ptr<float>(), static_cast<std::size_t>(gradient.numel())};
}

// What one replica brings to the group.
struct GroupMember {
  sync::GroupHello hello;
  std::shared_ptr<const nccl::Library> library;  // on a device
  std::optional<sync::SharedMemory> memory;      // on the CPU
};

GroupMember member_on_cpu(const GroupOptions& options, const at::Tensor& gradient) {
  GroupMember member;
  if (options.use == GroupOptions::Use::always) {
    member.memory.emplace(sync::SharedMemoryGroup::memory_for(values_of(gradient).size()));
    member.hello = sync::SharedMemoryGroup::hello(options.place, *member.memory);
  } else {
    member.hello = {"shared memory", "", options.place, "it computes on the CPU", ""};
  }
  return member;
}

GroupMember member_on_device(const GroupOptions& options, bool first) {
  GroupMember member;
  if (options.nccl_library.empty()) {
    member.hello = {"NCCL", "", options.place, "NCCL sums on NVIDIA's GPUs only", ""};
    return member;
  }
  try {
    member.library = std::make_shared<const nccl::Library>(options.nccl_library);
    member.hello = NcclGroup::hello(*member.library, options.place, first);
  } catch (const net::LinkError& error) {
    member.hello = {"NCCL", "", options.place, error.what(), ""};
  }
  return member;
}

}  // namespace

GroupSetup set_up_group(const GroupOptions& options, const at::Tensor& gradient,
                        std::span<net::Link* const> links, const sync::Membership& membership) {
  const bool on_cpu = gradient.is_cpu();
  GroupMember member =
      on_cpu ? member_on_cpu(options, gradient) : member_on_device(options, membership.mine == 0);
  const std::vector<sync::GroupHello> hellos =
      sync::exchange_hellos(member.hello, links, membership, options.limits.setup);
  if (const auto why = sync::objection(hellos, membership, /*place_each=*/!on_cpu)) {
    if (options.use == GroupOptions::Use::always) {
      throw net::LinkError(net::LinkError::Kind::refused,
                           "sync.group is \"always\", but replicas cannot sum without links: " +
                               *why + "; leave sync.group at \"auto\"");
    }
    return {nullptr, "gradients are summed over links: " + *why};
  }
  GroupSetup made;
  if (on_cpu) {
    made.group = std::make_unique<sync::SharedMemoryGroup>(
        values_of(gradient), std::move(*member.memory), hellos, membership);
  } else {
    made.group = std::make_unique<NcclGroup>(std::move(member.library), gradient, hellos.front(),
                                             membership, options.limits);
  }
  made.text = "gradients are summed by " + made.group->name();
  return made;
}

}  // namespace strait::stages

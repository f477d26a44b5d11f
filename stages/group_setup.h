#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "framework/net/link.h"
#include "framework/sync/frame_relay.h"
#include "framework/sync/membership.h"
#include "framework/sync/replica_group.h"
#include "stages/nccl_group.h"

namespace strait::stages {

// Equal on all replicas of a stage, but for the place.
struct GroupOptions {
  // How members of a group sum. `automatic` is for a group of all replicas alone.
  enum class Use : std::uint8_t {
    automatic,  // by NCCL if all have GPUs of their own; otherwise there is no group
    always      // likewise, otherwise in shared memory; where that cannot be, the run stops
  };
  sync::ReplicaGroups groups;  // empty: each replica is one
  Use use = Use::always;
  bool one_host = true;                       // all members of a group share memory
  std::string place;                          // of this replica, for messages: "host 0, cuda:1"
  std::string nccl_library = "libnccl.so.2";  // empty: NCCL knows no such device
  NcclLimits limits = {};
};

// The group of one replica. A null group: the sums go over links.
struct GroupSetup {
  std::unique_ptr<sync::ReplicaGroup> group;
  bool on_host = false;  // it sums the host's copy of the gradient
  // Of several groups: what the first member receives from others.
  std::unique_ptr<sync::FrameRelay> relay;
  std::string text;  // "gradients are summed by NCCL 2.29.7", or "… over links: " and why
};

// Makes the group of a replica over the links between its members, which are by replica and have
// carried nothing yet. `gradient` is flat and outlives the group, as does its place in the host's
// memory, which is asked for only where it is summed there. Throws net::LinkError: a replica does
// not come in time, or versions differ; with Use::always also if there can be no group.
GroupSetup set_up_group(const GroupOptions& options, const at::Tensor& gradient,
                        const std::function<std::span<float>()>& on_host,
                        std::span<net::Link* const> links, const sync::Membership& membership);

}  // namespace strait::stages

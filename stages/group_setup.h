#pragma once

#include "framework/net/link.h"
#include "framework/sync/frame_relay.h"
#include "framework/sync/membership.h"
#include "framework/sync/replica_group.h"
#include "stages/nccl_group.h"

namespace strait::stages {

// Equal on all replicas of a stage, except `place`.
struct GroupOptions {
  // How members of a group sum. `automatic` is only for a group of all replicas.
  enum class Use : std::uint8_t {
    automatic,  // by NCCL if every member has its own GPU; otherwise there is no group
    always      // the same, otherwise in shared memory; if that is impossible, the run stops
  };
  sync::ReplicaGroups groups;  // empty: each replica is a group
  Use use = Use::always;
  bool one_host = true;                       // all members of a group share memory
  std::string place;                          // of this replica, for messages: "host 0, cuda:1"
  std::string nccl_library = "libnccl.so.2";  // empty: NCCL does not support this device
  NcclLimits limits = {};
};

// The group of one replica. Null: gradients are summed over links.
struct GroupSetup {
  std::unique_ptr<sync::ReplicaGroup> group;
  bool on_host = false;  // it sums the host's copy of the gradient
  // With several groups: relays what the first member receives from other groups.
  std::unique_ptr<sync::FrameRelay> relay;
  std::string text;  // "gradients are summed by NCCL 2.29.7", or "… over links: " and why
};

// Makes the group of a replica over the links between its members, which are indexed by replica and
// have carried nothing yet. `gradient` is flat and outlives the group. So does its memory on the
// host, which `on_host` returns and which is requested only if the host sums. `shared`: the weights
// of members that share the optimizer's state, flat, which outlive the group; else undefined.
// Throws net::LinkError if a replica does not connect in time or versions differ; with Use::always
// also if no group is possible, and with shared weights if the group cannot gather them.
GroupSetup set_up_group(const GroupOptions& options, const at::Tensor& gradient,
                        const std::function<std::span<float>()>& on_host,
                        std::span<net::Link* const> links, const sync::Membership& membership,
                        const at::Tensor& shared = {});

}  // namespace strait::stages

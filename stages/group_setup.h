#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "framework/net/link.h"
#include "framework/sync/membership.h"
#include "framework/sync/replica_group.h"
#include "stages/nccl_group.h"

namespace strait::stages {

// Equal on all replicas of a stage, but for the place.
struct GroupOptions {
  enum class Use : std::uint8_t {
    never,
    automatic,  // if all replicas of the stage have GPUs of their own and NCCL
    always      // GPUs with NCCL, or CPUs in shared memory; otherwise the run stops
  };
  Use use = Use::never;
  std::string place;                          // of this replica, for messages: "host 0, cuda:1"
  std::string nccl_library = "libnccl.so.2";  // empty: NCCL knows no such device
  NcclLimits limits = {};
};

// A null group: the sums go over links.
struct GroupSetup {
  std::unique_ptr<sync::ReplicaGroup> group;
  std::string text;  // "gradients are summed by NCCL 2.29.7", or "… over links: " and why
};

// Makes the group of a stage's replicas over their links, which are by replica and have carried
// nothing yet. `gradient` is flat, and outlives the group. Throws net::LinkError: a replica does
// not come in time, or versions differ; with Use::always also if there can be no group.
GroupSetup set_up_group(const GroupOptions& options, const at::Tensor& gradient,
                        std::span<net::Link* const> links, const sync::Membership& membership);

}  // namespace strait::stages

#pragma once

#include <cstdint>
#include <string>

#include "framework/sync/membership.h"
#include "framework/sync/sync_settings.h"
#include "launcher/plan/plan.h"

namespace strait::planner {

// The groups that the replicas of a stage would be in with this sync method, by the recipe and by
// their hosts. Nothing else decides it, but that no forecast counts on GPUs that are not known of.
// A pure function, so that a forecast of a method has its groups, too.
sync::ReplicaGroups groups_with(const plan::Plan& plan, const std::string& method,
                                std::uint32_t stage);

// Puts the processes of the plan into the groups of its method. Those that "auto" chose for the
// plan `before` stay, where hosts still allow it: replicas have their state by groups. UserError
// (bad_input): sync.group is "always", but there can be no group.
void plan_groups(plan::Plan& plan, const plan::Plan* before);

// UserError (bad_input): by what is known of its hosts, replicas of a stage compute on GPUs and on
// CPUs, or on CPUs of two kinds, and the method has each update its own copy of the weights: the
// two round differently.
void check_replica_devices(const plan::Plan& plan);

// Whether replicas of a stage that are one group find out when they start whether they have GPUs
// and NCCL for it, and leave the sums to links if not.
bool group_is_uncertain(const plan::Plan& plan, std::uint32_t stage);

// Whether the group of a process is on one host.
bool group_shares_host(const plan::Plan& plan, net::ProcessName process);

// To follow the method's name: " by NCCL between GPUs of one host", " between groups of replicas …,
// which sum …", ", replaced by exact sums …". Empty: there are no groups.
std::string group_text(const plan::Plan& plan);

}  // namespace strait::planner

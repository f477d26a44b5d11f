#pragma once

#include "framework/sync/membership.h"
#include "framework/sync/sync_settings.h"
#include "launcher/recipe/plan.h"

namespace strait::planner {

// The groups that the replicas of a stage would form with this sync method. They depend only on the
// recipe and its hosts; no forecast counts on GPUs that are not known. Pure, so that a forecast of
// a method has its groups, too.
sync::ReplicaGroups groups_with(const plan::Plan& plan, const std::string& method,
                                std::uint32_t stage);

// Assigns the processes of the plan to the groups of its method. Groups that "auto" chose for the
// plan `before` stay if the hosts still allow it, because replicas store their state by groups.
// UserError (bad_input): sync.group is "always", but no group is possible.
void plan_groups(plan::Plan& plan, const plan::Plan* before);

// UserError (bad_input): sync.share_state is true, but replicas sum nowhere in shared memory or by
// NCCL, or some of them off-load the state of GPUs.
void check_shared_state(const plan::Plan& plan);

// UserError (bad_input): replicas of a stage compute on GPUs and on CPUs, or on two kinds of CPUs,
// as far as hosts are known, and with this method each replica updates its own copy of the weights.
// The two round differently.
void check_replica_devices(const plan::Plan& plan);

// Whether the replicas of a stage, which form one group, learn only when they start whether they
// have GPUs and NCCL. If not, they sum over links.
bool group_is_uncertain(const plan::Plan& plan, std::uint32_t stage);

// Whether the group of a process is on one host.
bool group_shares_host(const plan::Plan& plan, net::ProcessName process);

// Text to append to the method's name: " by NCCL between GPUs of one host", " between groups of
// replicas …, which sum …", ", replaced by exact sums …". Empty: there are no groups.
std::string group_text(const plan::Plan& plan);

}  // namespace strait::planner

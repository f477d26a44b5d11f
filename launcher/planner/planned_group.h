#pragma once

#include <cstdint>
#include <string>

#include "launcher/plan/plan.h"

namespace strait::planner {

// Whether the replicas of this stage try to sum their gradients without links when they start: by
// the recipe and by their hosts. What they compute on, and whether NCCL is there, they say then
// (stages/group_setup.h). A pure function of the plan, so that all of them do the same.
bool tries_group(const plan::Plan& plan, std::uint32_t stage);

// Of the stages of a plan that try: "by NCCL between GPUs of one host". Empty: none does.
std::string group_text(const plan::Plan& plan);

// Whether all replicas of this stage, or of each stage, are on one host.
bool on_one_host(const plan::Plan& plan, std::uint32_t stage);
bool on_one_host(const plan::Plan& plan);

// Checks sync.group with the rest of the plan. UserError: "always" cannot be.
void check_group(const plan::Plan& plan);

}  // namespace strait::planner

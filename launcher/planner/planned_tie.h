#pragma once

#include <optional>

#include "framework/data/data_preparation.h"
#include "launcher/plan/plan.h"
#include "models/model_description.h"

namespace strait::planner {

// What a tied table costs per step where embedding and LM head are on different stages: the rows
// that a step looks up, see stages/link_tie.h.
struct TieBytes {
  double gradients = 0;  // from the first stage
  double values = 0;     // to the first stage
};

// Mean of the first few steps of replica 0. None if no weight is on two stages.
std::optional<TieBytes> tie_bytes(const plan::Plan& plan, const models::ModelDescription& model,
                                  const data::PreparedData& train);

// One of every replica.
void plan_tie_links(plan::Plan& plan, const TieBytes& bytes);

}  // namespace strait::planner

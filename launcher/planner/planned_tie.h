#pragma once

#include <optional>

#include "framework/data/data_preparation.h"
#include "launcher/plan/plan.h"
#include "models/model_description.h"

namespace strait::planner {

// Bytes per step of a tied table if embedding and LM head are on different stages: the rows that a
// step looks up, see stages/link_tie.h.
struct TieBytes {
  double gradients = 0;  // from the first stage
  double values = 0;     // to the first stage
};

// Mean over the first few steps of replica 0. Nullopt: no weight is on two stages.
std::optional<TieBytes> tie_bytes(const plan::Plan& plan, const models::ModelDescription& model,
                                  const data::PreparedData& train);

// Adds one link per replica.
void plan_tie_links(plan::Plan& plan, const TieBytes& bytes);

}  // namespace strait::planner
